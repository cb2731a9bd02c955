"""Who takes part: sizes, shares, and that everybody is as likely."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from glocal import rng
from glocal.errors import GlocalError
from glocal.sampling import Fixed, Fraction, Poisson, Sampler


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
