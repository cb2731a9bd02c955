"""Benefits, their noise and their overlap, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from glocal.evaluation.paired_differences import PairedDifferences, Pairs, paired_differences


def one(units: list[int], difference: list[float], weight: list[float] | None = None) -> Pairs:
    n = len(units)
    w = np.full(n, 1 / max(n, 1)) if weight is None else np.array(weight)
    return Pairs([np.array(units, dtype=np.int64)], [w], [np.array(difference, dtype=float)])


def of(*repeats: Pairs, pooled: bool = True) -> PairedDifferences:
    return paired_differences(repeats, pooled=pooled)


def test_equal_weights_by_hand() -> None:
    """Four examples, two won and one lost: b = 1/4, d = 3/4, v = ((4·3/4 + 1)/6)/4."""
    d = of(one([0, 1, 2, 3], [1, 1, -1, 0]))
    assert d.benefit[0, 0] == pytest.approx(1 / 4)
    assert d.differing[0, 0] == pytest.approx(3 / 4)
    assert d.effective[0, 0] == pytest.approx(4)
    assert d.noise[0, 0] == pytest.approx((3 + 1) / 6 / 4)
    assert d.overlap[0] == pytest.approx(1)
    assert d.of_mean == pytest.approx(3 / 16)


def test_unequal_weights_count_for_fewer_examples() -> None:
    d = of(one([0, 1, 2], [1, 0, -1], [0.5, 0.25, 0.25]))
    assert d.benefit[0, 0] == pytest.approx(0.25)
    assert d.differing[0, 0] == pytest.approx(0.75)
    assert d.effective[0, 0] == pytest.approx(1 / (0.25 + 0.0625 + 0.0625))


def test_a_group_is_one_unit() -> None:
    """Ten copies of one example say as much as that example."""
    single = of(one([0, 1, 2], [1, -1, 0]))
    copied = of(one([0] * 10 + [1] * 10 + [2] * 10, [1] * 10 + [-1] * 10 + [0] * 10))
    for name in ("benefit", "differing", "effective", "noise", "of_mean"):
        assert np.allclose(getattr(single, name), getattr(copied, name))


def test_a_group_whose_rows_cancel_says_nothing() -> None:
    assert of(one([7, 7, 8], [1, -1, 0])).differing[0, 0] == 0


@pytest.mark.parametrize(("again", "left"), [(False, 1 / 2), (True, 1.0)])
def test_what_is_tested_again_does_not_average_out(again: bool, left: float) -> None:
    second = one([0, 1] if again else [2, 3], [1, 0])
    d = of(one([0, 1], [1, 0]), second)
    assert d.overlap[0] == pytest.approx(left)
    assert d.of_mean == pytest.approx(left * d.of_mean_once)


def test_ten_repeats_of_five_folds_are_as_good_as_five() -> None:
    folds = [one([2 * r, 2 * r + 1], [1, 0]) for r in range(5)]
    assert of(*folds).overlap[0] == pytest.approx(1 / 5)
    assert of(*folds, *folds).overlap[0] == pytest.approx(1 / 5)


def test_clients_that_share_their_tests_have_one_mean() -> None:
    """Both clients win the same example of two: the mean's noise is not halved."""
    ids, w, x = np.array([0, 1]), np.array([0.5, 0.5]), np.array([1.0, 0.0])
    shared = paired_differences([Pairs([ids, ids], [w, w], [x, x])], pooled=True)
    apart = paired_differences([Pairs([ids, ids + 2], [w, w], [x, x])], pooled=True)
    assert shared.of_mean == pytest.approx(1 / 4)
    assert apart.of_mean == pytest.approx(1 / 8)


def test_a_client_without_tests_and_another_metric() -> None:
    none = np.zeros(0)
    tested = Pairs(
        [none.astype(np.int64), np.array([0, 1])],
        [none, np.array([0.5, 0.5])],
        [none, np.array([3.0, -1.0])],
    )
    d = paired_differences([tested], pooled=False, unit=4.0)
    assert np.isnan(d.benefit[0, 0])
    assert d.benefit[0, 1] == pytest.approx(1.0)
    typical = (2 * 5.0 + 4.0) / (2 + 2)  # of two examples, and of two more of which one differs
    assert d.noise[0, 1] == pytest.approx(((2 * 5.0 + 10 * typical) / 12 - 1.0**2) / 2)
    # The mean is that of the client that was tested: its test examples' variance, not a quarter.
    assert d.of_mean == pytest.approx(1.5**2 + 0.5**2)


def test_nothing_that_differs_is_no_certainty() -> None:
    """Neither a client's interval nor the mean's has no width."""
    same = [one([2 * r, 2 * r + 1], [0, 0]) for r in range(3)]
    for unit in (1.0, 0.3):
        d = paired_differences(same, pooled=False, unit=unit)
        assert (d.noise > 0).all()
        assert d.of_mean_once == d.of_mean == pytest.approx(unit / 8 / 6)


def test_small_own_splits_borrow_the_federations_share_of_differences() -> None:
    """Two clients: 0 of 2 and 4 of 8 examples differ; D = (4 + 1)/(10 + 2), ten examples of it."""
    ids = [np.arange(2), np.arange(8) + 2]
    x = [np.zeros(2), np.array([1.0, 1, -1, -1, 0, 0, 0, 0])]
    d = paired_differences([Pairs(ids, [np.full(2, 1 / 2), np.full(8, 1 / 8)], x)], pooled=False)
    typical = 5 / 12
    assert d.noise[0].tolist() == pytest.approx(
        [10 * typical / 12 / 2, (4 + 10 * typical) / 18 / 8]
    )
