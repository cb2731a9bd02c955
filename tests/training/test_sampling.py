"""Who takes part: sizes, shares, and that everybody is as likely."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
import torch

from glocal.core import rng
from glocal.core.errors import GlocalError
from glocal.training import sampling
from glocal.training.sampling import Fixed, Fraction, Poisson, Sampler


def cohorts(sampler: Sampler, clients: int, n: int = 2000) -> list[list[int]]:
    return [sampler.cohort(clients, rng.fold(rng.key(0), r)).tolist() for r in range(n)]


@pytest.mark.parametrize("sampler", [Fixed(3), Fraction(0.3), Poisson(0.3)])
def test_everybody_is_as_likely_and_ids_ascend(sampler: Sampler) -> None:
    drawn = cohorts(sampler, 10)
    assert all(c == sorted(set(c)) for c in drawn)
    counts = Counter(k for c in drawn for k in c)
    assert sampler.share(10) == pytest.approx(0.3)
    for k in range(10):
        assert abs(counts[k] / 2000 - 0.3) < 4 * math.sqrt(0.3 * 0.7 / 2000)


@pytest.mark.parametrize(
    ("fraction", "clients", "size"),
    [(1.0, 7, 7), (0.5, 7, 4), (0.1, 20, 2), (0.01, 20, 1), (0.34, 3, 1)],
)
def test_a_fraction_is_rounded_and_at_least_one(fraction: float, clients: int, size: int) -> None:
    assert {len(c) for c in cohorts(Fraction(fraction), clients, 20)} == {size}
    assert Fraction(fraction).share(clients) == pytest.approx(size / clients)


def test_everybody_is_everybody() -> None:
    assert cohorts(Fixed(5), 5, 3) == [[0, 1, 2, 3, 4]] * 3
    assert cohorts(Poisson(1.0), 5, 3) == [[0, 1, 2, 3, 4]] * 3


def test_every_pair_is_as_likely() -> None:
    counts = Counter(map(tuple, cohorts(Fixed(2), 4, 3000)))
    assert len(counts) == 6
    assert sum((c - 500) ** 2 / 500 for c in counts.values()) < 20.5  # χ² with 5 degrees, 0.999


def test_poisson_sizes_vary_and_coins_are_independent() -> None:
    drawn = cohorts(Poisson(0.2), 5, 3000)
    sizes = Counter(map(len, drawn))
    for size in range(4):
        p = math.comb(5, size) * 0.2**size * 0.8 ** (5 - size)
        assert abs(sizes[size] / 3000 - p) < 4 * math.sqrt(p * (1 - p) / 3000)
    assert sizes[0] > 0
    assert Poisson(0.2).share(5) == 0.2


def test_the_key_decides() -> None:
    key = rng.key(3)
    for sampler in (Fixed(3), Fraction(0.3), Poisson(0.5)):
        assert torch.equal(sampler.cohort(10, key), sampler.cohort(10, key))


def test_what_cannot_be_drawn() -> None:
    with pytest.raises(GlocalError, match="5 clients a round cannot be drawn from 4"):
        Fixed(5).cohort(4, rng.key(0))
    with pytest.raises(GlocalError, match="a round needs 1 client or more, not 0"):
        Fixed(0)
    for share in (0.0, -0.1, 1.1, math.nan):
        with pytest.raises(GlocalError, match="fraction must be above 0 and up to 1"):
            Fraction(share)
        with pytest.raises(GlocalError, match="rate must be above 0 and up to 1"):
            Poisson(share)


@pytest.mark.parametrize("sampler", [Fixed(2), Poisson(0.2)])
def test_of_many_clients_every_cohort_is_as_likely(
    sampler: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "MANY", 5)
    n = 2000
    drawn = cohorts(sampler, 8, n)
    assert all(c == sorted(set(c)) for c in drawn)
    found = Counter(map(tuple, drawn))
    if isinstance(sampler, Fixed):
        expected = dict.fromkeys(itertools.combinations(range(8), 2), n / 28)
    else:
        sets = [s for k in range(9) for s in itertools.combinations(range(8), k)]
        expected = {s: n * 0.2 ** len(s) * 0.8 ** (8 - len(s)) for s in sets}
    common = {s: e for s, e in expected.items() if e >= 5}
    chi = sum((found[s] - e) ** 2 / e for s, e in common.items())
    assert set(found) <= set(expected)
    assert chi < len(common) + 4 * math.sqrt(2 * len(common))


def test_a_draw_looks_at_those_it_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    bits = rng.bits

    def watched(key: torch.Tensor, n: int) -> torch.Tensor:
        asked.append(n)
        return bits(key, n)

    monkeypatch.setattr(rng, "bits", watched)
    for clients in (10**5, 1 << 20, 10**9):
        cohort = Fixed(100).cohort(clients, rng.key(1))
        assert len(cohort) == 100
        assert clients // 2 < int(cohort[-1]) < clients
        assert 50 < len(Poisson(100 / clients).cohort(clients, rng.key(1))) < 150
    assert max(asked) < 1000


def test_up_to_ten_thousand_clients_the_draw_is_the_old_one() -> None:
    key = rng.key(7)
    old = rng.permutation(key, 10_000)[:5].sort().values
    assert torch.equal(Fixed(5).cohort(10_000, key), old)
    assert Fixed(5).cohort(6, key).tolist() == rng.permutation(key, 6)[:5].sort().values.tolist()
