"""The paired interval against SciPy, by enumeration and in simulation; the verdict by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from glocal.core.errors import GlocalError
from glocal.evaluation.paired_test import compare, compare_repeats, paired_interval, pool_weights

signed = st.lists(
    st.tuples(st.sampled_from([0.3, 0.7, 1.0, 1.9]), st.sampled_from([-1.0, 0.0, 1.0])),
    min_size=1,
    max_size=25,
).map(lambda pairs: np.array([w * s for w, s in pairs]))


def votes(wins: int, losses: int, weight: float = 1.0) -> np.ndarray:
    return weight * np.array([1.0] * wins + [-1.0] * losses + [0.0] * 5)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
@pytest.mark.parametrize(("wins", "losses"), [(0, 1), (1, 0), (5, 0), (3, 4), (17, 9), (400, 352)])
def test_equal_magnitudes_are_clopper_and_pearson(wins: int, losses: int, level: float) -> None:
    m = wins + losses
    ci = binomtest(wins, m).proportion_ci(confidence_level=level, method="exact")
    low, high = paired_interval(votes(wins, losses, 0.25), level)
    assert low == pytest.approx((2 * ci.low - 1) * m / 4, abs=1e-6)
    assert high == pytest.approx((2 * ci.high - 1) * m / 4, abs=1e-6)


def test_excludes_zero_exactly_when_mcnemar_rejects() -> None:
    for wins, losses in itertools.product(range(16), repeat=2):
        if wins + losses:
            low, high = paired_interval(votes(wins, losses))
            rejects = binomtest(wins, wins + losses).pvalue <= 0.10
            assert (low > 0 or high < 0) == rejects, (wins, losses)


def exact_tail(v: np.ndarray, t: float, p: float) -> float:
    """``P_p(Σ v s ≥ t)`` over all signs."""
    signs = np.array(list(itertools.product([-1, 1], repeat=len(v))))
    wins = (signs > 0).sum(1)
    chance = p**wins * (1 - p) ** (len(v) - wins)
    return float(chance[signs @ v >= t - 1e-9].sum())


@pytest.mark.parametrize("seed", range(8))
def test_unequal_magnitudes_by_enumeration(seed: int) -> None:
    """At either end the chance of what was seen, or more, is a twentieth.

    Of the statistic with rounded magnitudes, that is: integers are kept, others nearly.
    """
    rng = np.random.default_rng(seed)
    v = rng.choice([1.0, 2.0, 3.0, 5.0], 9) if seed % 2 else rng.uniform(0.5, 3.0, 9)
    a = v * np.where(rng.random(9) < 0.5, 1, -1)
    a[np.argmax(v)] = v.max()
    a[np.argmin(v)] = -v.min()
    low, high = paired_interval(a)
    p_low, p_high = (np.array([low, high]) / v.sum() + 1) / 2
    twentieth = pytest.approx(0.05, abs=1e-6 if seed % 2 else 2e-3)
    assert exact_tail(v, a.sum(), p_low) == twentieth
    assert exact_tail(v, -a.sum(), 1 - p_high) == twentieth


def test_signs_all_one_way_reach_the_sum() -> None:
    low, high = paired_interval(np.array([1.0, 2.0, 2.5, 0.0]))
    assert high == pytest.approx(5.5)
    assert low == pytest.approx((2 * 0.05 ** (1 / 3) - 1) * 5.5)


def test_without_discordant_examples_there_is_no_evidence() -> None:
    for a in (np.zeros(7), np.zeros(0)):
        assert str(paired_interval(a)) == "(0.0, 0.0)"
    verdict = compare(np.ones(7), np.ones(7))
    assert (verdict.benefit, verdict.low, verdict.high) == (0.0, 0.0, 0.0)
    assert verdict.verdict == "undecided"


def test_the_observed_sum_is_inside_even_where_the_bound_on_p_is_not() -> None:
    low, high = paired_interval(np.array([-100.0, 1.0]))
    assert low <= -99.0 <= high


def test_many_and_widely_spread_magnitudes_stay_near_the_normal_limit() -> None:
    """The lattice is coarse there: 40,000 magnitudes over two orders."""
    rng = np.random.default_rng(1)
    a = 10 ** rng.uniform(-2, 0, 40_000) * np.where(rng.random(40_000) < 0.5, 1, -1)
    low, high = paired_interval(a)
    sd = math.sqrt((a**2).sum())
    assert (low - a.sum()) / sd == pytest.approx(-1.645, abs=0.05)
    assert (high - a.sum()) / sd == pytest.approx(1.645, abs=0.05)


@settings(deadline=None)
@given(signed, st.integers(0, 2**32 - 1), st.sampled_from([0.1, 3.0, 1e-6]))
@example(np.array([-0.3] * 4 + [-0.7] * 5 + [-1.0] * 4 + [1.0] + [-1.9] * 5), 1, 0.1)
def test_interval_properties(a: np.ndarray, seed: int, c: float) -> None:
    low, high = paired_interval(a)
    size = np.abs(a).sum()
    assert -size - 1e-9 <= low <= a.sum() + 1e-9
    assert a.sum() - 1e-9 <= high <= size + 1e-9
    near = pytest.approx((low, high), abs=1e-7 * (1 + size))
    assert tuple(-x for x in reversed(paired_interval(-a))) == near
    assert paired_interval(np.random.default_rng(seed).permutation(a)) == near
    assert tuple(x / c for x in paired_interval(c * a)) == near
    wider = paired_interval(a, level=0.97)
    assert wider[0] <= low + 1e-9
    assert high <= wider[1] + 1e-9


# --- simulation: two-sided error of the verdict, and coverage -----------------------------------


def draw(
    rng: np.random.Generator, weight: np.ndarray, win: np.ndarray, loss: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Correctness of the method and of the local baseline for independent examples."""
    u = rng.random(len(weight))
    return (u < win).astype(float), ((u >= win) & (u < win + loss)).astype(float)


def errors(
    shares: list[float], n: int, win: list[float], loss: list[float], draws: int = 2000
) -> tuple[float, float]:
    """How often each verdict is given although the true benefit is zero."""
    assert np.dot(shares, np.subtract(win, loss)) == pytest.approx(0)
    rng = np.random.default_rng(0)
    weight, gain, lose = (np.repeat(x, n) for x in (np.array(shares) / n, win, loss))
    given = [compare(*draw(rng, weight, gain, lose), weight).verdict for _ in range(draws)]
    return given.count("better off") / draws, given.count("worse off") / draws


# A twentieth a side, and three standard errors of 2,000 draws.
BOUND = 0.05 + 3 * math.sqrt(0.05 * 0.95 / 2000)


@pytest.mark.parametrize(
    ("shares", "n", "win", "loss"),
    [
        pytest.param([1.0], 40, [0.15], [0.15], id="one class, no effect"),
        pytest.param([0.5, 0.5], 36, [0.0, 0.1], [0.1, 0.0], id="equal classes, pure offset"),
        pytest.param([0.5, 0.5], 36, [0.05, 0.15], [0.15, 0.05], id="equal classes, offset"),
        pytest.param([0.9, 0.1], 36, [0.05, 0.05], [0.05, 0.05], id="unequal classes, no effect"),
    ],
)
def test_zero_benefit_is_rarely_called_anything(
    shares: list[float], n: int, win: list[float], loss: list[float]
) -> None:
    assert max(errors(shares, n, win, loss)) <= BOUND


@pytest.mark.parametrize(
    ("shares", "win", "loss"),
    [
        pytest.param([0.9, 0.1], [0.0, 0.18], [0.02, 0.0], id="the heavy class hardly seen"),
        pytest.param([0.9, 0.1], [0.0, 0.72], [0.08, 0.0], id="the heavy class seen"),
        pytest.param([0.8, 0.2], [0.0, 0.2], [0.05, 0.0], id="four to one"),
        pytest.param([0.1, 0.3, 0.6], [0.45, 0.05, 0.0], [0.0, 0.0, 0.1], id="three classes"),
    ],
)
def test_zero_benefit_of_heavy_losses_and_light_gains(
    shares: list[float], win: list[float], loss: list[float]
) -> None:
    """The offset null at its hardest; without the example counted against it 40 % come out."""
    better, worse = errors(shares, 36, win, loss)
    assert better <= BOUND
    assert worse <= BOUND
    assert errors(shares, 36, loss, win) == pytest.approx((worse, better), abs=0.02)


@pytest.mark.parametrize("p", [0.2, 0.5, 0.85])
def test_coverage_given_the_magnitudes(p: float) -> None:
    rng = np.random.default_rng(2)
    v = np.array([1.0, 1.3, 2.1, 0.4]).repeat(5)
    target = (2 * p - 1) * v.sum()
    hits = 0
    for _ in range(2000):
        low, high = paired_interval(v * np.where(rng.random(20) < p, 1, -1))
        hits += low <= target <= high
    assert hits / 2000 >= 0.90 - 3 * math.sqrt(0.09 / 2000)


# --- verdicts -----------------------------------------------------------------------------------


def test_verdicts_by_hand() -> None:
    """Five to nothing is p = 1/16 (two-sided), four to nothing 1/8."""
    right, wrong = np.array([1.0] * 5 + [0.0] * 5), np.zeros(10)
    better = compare(right, wrong)
    assert (better.verdict, better.benefit, better.high) == ("better off", 0.5, 0.5)
    assert better.low == pytest.approx((2 * 0.05**0.2 - 1) / 2)
    worse = compare(torch.tensor(wrong), torch.tensor(right))
    assert (worse.verdict, worse.benefit) == ("worse off", -0.5)
    assert worse.high == pytest.approx(-better.low)
    assert compare(right, np.eye(10)[0]).verdict == "undecided"
    assert compare(right, wrong, level=0.95).verdict == "undecided"


def test_booleans_and_constant_weights_change_nothing() -> None:
    correct, alone = torch.tensor([True, True, False]), torch.tensor([False, True, True])
    assert compare(correct, alone) == compare(correct, alone, torch.full((3,), 7.0))


def test_weighted_benefit_and_the_example_counted_against() -> None:
    """Weights 3 and nine 1: the ends are those with one more example of weight 3 against them."""
    v = compare([1.0] * 6 + [0.0] * 4, [0.0] * 9 + [1.0], [3] + [1] * 9)
    a = np.array([3, 1, 1, 1, 1, 1, -1]) / 12
    assert v.benefit == pytest.approx(7 / 12)
    assert v.low == pytest.approx(paired_interval(np.append(a, -1 / 4))[0])
    assert v.high == pytest.approx(paired_interval(np.append(a, 1 / 4))[1])
    assert compare([1, 1], [0, 0], [3, 1]).high == 1.0, "no benefit is more than one"
    assert compare([1, 1, 0], [0, 0, 1], [3, 3, 0]) == compare([1, 1], [0, 0])


def test_shares_of_sequences() -> None:
    v = compare([0.5, 0.75, 1.0], [0.25, 0.25, 0.25])
    assert v.benefit == pytest.approx(0.5)
    assert v.low == pytest.approx(paired_interval(np.array([1.0, 2.0, 3.0]) / 12)[0])
    weighted = compare([0.5, 0.5], [0.25, 0.25], [1, 3])
    assert weighted.low == pytest.approx(paired_interval([1 / 16, 3 / 16, -3 / 16])[0])


def test_no_test_examples_no_verdict() -> None:
    for v in (compare([], []), compare([1.0], [0.0], [0.0]), compare_repeats([])):
        assert math.isnan(v.benefit)
        assert v.verdict == "undecided"


def test_bad_input_is_refused() -> None:
    with pytest.raises(GlocalError, match="shapes"):
        compare([1, 0], [1])
    with pytest.raises(GlocalError, match="between 0 and 1"):
        compare([1], [1], level=90)


# --- repeats ------------------------------------------------------------------------------------


def test_one_repeat_is_compare() -> None:
    correct, alone = np.array([1, 1, 0, 1.0]), np.array([0, 0, 0, 1.0])
    assert compare_repeats([(np.array([9, 4, 7, 1]), correct, alone, None)]) == compare(
        correct, alone
    )


def test_the_same_examples_again_add_no_evidence() -> None:
    ids, correct, alone = np.arange(4), np.ones(4), np.zeros(4)
    once, again = (
        compare_repeats([(ids, correct, alone, None)]),
        compare_repeats([(ids, correct, alone, None)] * 5),
    )
    assert (again.benefit, again.verdict) == (once.benefit, once.verdict) == (1.0, "undecided")
    assert again.low == pytest.approx(once.low)


def test_distinct_examples_add_evidence() -> None:
    repeats = [(np.arange(4) + 4 * r, np.ones(4), np.zeros(4), None) for r in range(2)]
    assert compare_repeats(repeats).verdict == "better off"


def test_what_cancels_between_repeats_is_no_vote() -> None:
    """Row 0 is won and lost; rows 1 and 2 are won once each of the two times they come."""
    one = (np.array([0, 1, 2]), np.array([1, 1, 1]), np.array([0, 0, 0]), None)
    two = (np.array([2, 1, 0]), np.array([1, 1, 0]), np.array([0, 0, 1]), None)
    v = compare_repeats([one, two])
    assert v.benefit == pytest.approx((1 + 1 / 3) / 2)
    assert v.low == pytest.approx((2 * math.sqrt(0.05) - 1) * 2 / 3)


def test_rounding_errors_are_no_votes() -> None:
    """.1 + .2 − .3 is not quite zero; six rows of it would be six votes."""
    ids, alone = np.arange(6), np.full(6, 0.5)
    v = compare_repeats([(ids, alone + d, alone, None) for d in (0.1, 0.2, -0.3)])
    assert (v.low, v.high, v.verdict) == (0.0, 0.0, "undecided")


def test_benefit_is_the_mean_over_repeats_that_tested_something() -> None:
    repeats = [
        (np.arange(2), np.array([1, 1]), np.array([0, 1]), None),
        (np.arange(10, 14), np.array([1, 0, 0, 0]), np.zeros(4), None),
        (np.zeros(0), np.zeros(0), np.zeros(0), None),
    ]
    assert compare_repeats(repeats).benefit == pytest.approx((1 / 2 + 1 / 4) / 2)


# --- pooled test set ----------------------------------------------------------------------------


def test_pool_weights_give_the_shares() -> None:
    y = torch.tensor([0, 0, 0, 1, 2, 2])
    w = pool_weights(y, torch.tensor([0.5, 0.5, 0.0]))
    assert w.tolist() == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1 / 2, 0, 0])


def test_classes_the_pool_lacks_leave_their_share_to_the_others() -> None:
    w = pool_weights(torch.tensor([0, 1, 1]), torch.tensor([10, 30, 60]))
    assert w.tolist() == pytest.approx([0.25, 0.375, 0.375])


def test_a_pool_without_the_clients_classes_is_refused() -> None:
    with pytest.raises(GlocalError, match="own test split"):
        pool_weights(torch.tensor([0, 0]), torch.tensor([0.0, 1.0]))
    with pytest.raises(GlocalError, match="label 3"):
        pool_weights(torch.tensor([0, 3]), torch.tensor([0.5, 0.5]))
