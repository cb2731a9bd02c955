"""The four verdicts, what would decide, and that equals are not called."""

from __future__ import annotations

import math

import numpy as np
import pytest

from glocal.evaluation.mean_benefit import mean_benefit
from glocal.evaluation.paired_differences import PairedDifferences, Pairs, paired_differences
from glocal.evaluation.verdict import (
    POWER,
    below_zero,
    exact_ends,
    of_these_models,
    verdicts,
    what_decides,
    word,
)

DELTA = np.full(20, 0.02)


def test_words() -> None:
    assert word(0.001, 0.1, 0.02) == "better off"
    assert word(-0.1, -0.001, 0.02) == "worse off"
    assert word(-0.01, 0.019, 0.02) == "same"
    assert word(-0.01, 0.021, 0.02) == "undecided"


def test_how_probable_worse_is() -> None:
    assert below_zero(1.0, 1.0) == pytest.approx(0.158655, abs=1e-6)
    assert below_zero(0.0, 0.0) == 0.5
    assert (below_zero(0.1, 0.0), below_zero(-0.1, 0.0)) == (0.0, 1.0)


def test_what_decides_is_what_it_takes() -> None:
    """With so many examples the benefit is as many standard errors as the power asks for."""
    found = what_decides(0.05, once=0.004, noise=0.003, n=40, repeats=3)
    assert found is not None
    variance = (0.004 - 0.003) / 3 + 0.003 * 40 / found["examples"] / 3
    assert 0.05 / math.sqrt(variance) == pytest.approx(POWER, rel=0.01)


def test_below_the_luck_of_training_only_repeats_help() -> None:
    found = what_decides(0.02, once=0.004, noise=0.001, n=40, repeats=3)
    assert found == {"repeats": math.ceil(0.004 * (POWER / 0.02) ** 2)}
    assert what_decides(0.0, 0.004, 0.001, 40, 3) is None


def drawn(rng: np.random.Generator, gain: float, luck: float, n: int, repeats: int) -> list[Pairs]:
    """Twenty clients: models that differ on a tenth of the examples, by chance and by gain."""
    found = []
    for r in range(repeats):
        units, difference = [], []
        for k in range(20):
            p = 0.5 + (gain + luck * rng.standard_normal()) / 0.2
            differ = rng.random(n) < 0.1
            won = rng.random(n) < np.clip(p, 0, 1)
            units.append(np.arange(n) + n * (k + 20 * r))
            difference.append(np.where(differ, np.where(won, 1.0, -1.0), 0.0))
        found.append(Pairs(units, [np.full(n, 1 / n)] * 20, difference))
    return found


@pytest.mark.parametrize("n", [30, 3000])
def test_equals_are_seldom_called_however_many_examples(n: int) -> None:
    """Luck of 2 points, no gain: today's interval without training would call most of n = 3000."""
    called: dict[bool, list[bool]] = {True: [], False: []}
    for seed in range(12):
        rng = np.random.default_rng(seed)
        d = paired_differences(drawn(rng, 0.0, 0.02, n, 5), pooled=True)
        for pooled, calls in called.items():
            found = verdicts(d, np.full(20, 100.0), DELTA, 0.9, pooled=pooled)
            calls += [v.verdict in ("better off", "worse off") for v in found]
    assert np.mean(called[True]) <= 0.12
    assert np.mean(called[False]) <= 0.12


def test_a_gain_is_shown_and_same_is_said() -> None:
    rng = np.random.default_rng(0)
    d = paired_differences(drawn(rng, 0.05, 0.0, 2000, 3), pooled=True)
    assert {v.verdict for v in verdicts(d, np.full(20, 9.0), DELTA, 0.9, pooled=True)} == {
        "better off"
    }
    d = paired_differences(drawn(rng, 0.0, 0.0, 20000, 3), pooled=True)
    words = [v.verdict for v in verdicts(d, np.full(20, 9.0), DELTA, 0.9, pooled=True)]
    assert words.count("same") >= 12
    assert words.count("undecided") == 0


def test_few_repeats_are_the_exact_test_of_these_models() -> None:
    """Five discordant examples won of ten: not shown; ten won: shown, and the interval agrees."""

    def of(difference: list[float]) -> list[object]:
        ids, x = np.arange(len(difference)), np.array(difference)
        w = np.full(len(x), 1 / len(x))
        d = paired_differences([Pairs([ids], [w], [x])], pooled=True)
        return [*of_these_models(d, [exact_ends([(ids, x, 0 * x, None)], 0.9)], np.array([0.02]))]

    (few,) = of([1.0] * 4 + [0.0] * 30)
    (many,) = of([1.0] * 10 + [0.0] * 24)
    assert few.verdict == "undecided"  # type: ignore[attr-defined]
    assert few.low <= 0  # type: ignore[attr-defined]
    assert many.verdict == "better off"  # type: ignore[attr-defined]
    assert 0 < many.low < many.benefit < many.high  # type: ignore[attr-defined]


def test_the_mean_has_the_repeats_degrees_of_freedom() -> None:
    benefit = np.array([[0.1, 0.2], [0.0, 0.1], [0.2, 0.3]])
    d = PairedDifferences(
        benefit, benefit, benefit, benefit, np.full(2, 1 / 3), of_mean=1e-6, of_mean_once=3e-6
    )
    mean, low, high = mean_benefit(d, 0.9)
    assert mean == pytest.approx(0.15)
    assert high - low == pytest.approx(2 * 2.919986 * 0.1 / math.sqrt(3), rel=1e-5)


def test_repeats_of_the_same_tests_leave_their_noise_in_the_mean() -> None:
    benefit = np.full((20, 3), 0.05) + np.linspace(-1e-4, 1e-4, 20)[:, None]
    d = PairedDifferences(
        benefit, benefit, benefit, benefit, np.full(3, 1 / 5), of_mean=4e-4, of_mean_once=2e-3
    )
    mean, low, _ = mean_benefit(d, 0.9)
    assert mean - low > 1.7 * math.sqrt(4e-4)


def test_a_client_that_one_repeat_cannot_test_takes_nothing_from_the_others() -> None:
    """As where an AUC is not defined in it: all have verdicts, its own of two repeats."""
    repeats = drawn(np.random.default_rng(4), 0.03, 0.01, 60, 3)
    none = np.zeros(0)
    gap = repeats[1]
    repeats[1] = Pairs(
        [none.astype(np.int64), *gap.units[1:]],
        [none, *gap.weight[1:]],
        [none, *gap.difference[1:]],
    )
    for unit in (1.0, 0.2):
        d = paired_differences(repeats, pooled=False, unit=unit)
        found = verdicts(d, np.full(20, 100.0), DELTA, 0.9, pooled=False)
        assert all(math.isfinite(v.low) and v.low < v.high for v in found)


def test_models_that_never_differ_are_not_known_to_the_last_digit() -> None:
    """Neither with the luck of training nor of these models; of any metric."""
    same = [
        Pairs(p.units, p.weight, [0 * x for x in p.difference])
        for p in drawn(np.random.default_rng(5), 0.0, 0.0, 8, 3)
    ]
    for repeats in (same, same[:1]):
        for unit in (1.0, 0.01):
            d = paired_differences(repeats, pooled=False, unit=unit)
            if len(repeats) > 2:
                found = verdicts(d, np.full(20, 100.0), DELTA, 0.9, pooled=False)
            else:
                found = of_these_models(d, None, DELTA)
            assert all(v.low < 0 < v.high for v in found)
            assert mean_benefit(d, 0.9)[1] < 0


def test_the_mean_covers_where_half_of_the_clients_cannot_be_tested() -> None:
    """Of these models, as 90 % should: the mean is over those who are tested."""
    rng, covered, none = np.random.default_rng(6), 0, np.zeros(0)
    for _ in range(200):
        (p,) = drawn(rng, 0.0, 0.0, 60, 1)
        half = Pairs(
            [*p.units[:10], *[none.astype(np.int64)] * 10],
            [*p.weight[:10], *[none] * 10],
            [*p.difference[:10], *[none] * 10],
        )
        _, low, high = mean_benefit(paired_differences([half], pooled=False), 0.9)
        covered += low < 0 < high
    assert 165 <= covered <= 196
