"""Metrics against scikit-learn and by hand; fairness by hand."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score, top_k_accuracy_score
from torch import Tensor

from glocal.core.errors import GlocalError
from glocal.evaluation.metrics import (
    LOWER_IS_BETTER,
    METRICS,
    accuracy,
    auc,
    correct,
    cross_entropy,
    ece,
    fairness,
    lorenz,
    mce,
    top_k,
)


def sample(n: int = 60, classes: int = 7, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, classes, generator=g) * 2
    return logits, torch.randint(classes, (n,), generator=g), torch.rand(n, generator=g)


def logits_of(p: list[list[float]]) -> Tensor:
    return torch.tensor(p, dtype=torch.float64).log()


def test_against_scikit_learn() -> None:
    logits, y, w = sample()
    p = logits.double().softmax(-1).numpy()
    for weight in (None, w):
        kw = {"sample_weight": None if weight is None else weight.numpy()}
        labels = np.arange(7)
        assert accuracy(logits, y, weight) == pytest.approx(accuracy_score(y, p.argmax(1), **kw))
        assert cross_entropy(logits, y, weight) == pytest.approx(
            log_loss(y, p, labels=labels, **kw), rel=1e-6
        )
        for k in (1, 3, 5):
            assert top_k(k)(logits, y, weight) == pytest.approx(
                top_k_accuracy_score(y, p, k=k, labels=labels, **kw)
            )


@pytest.mark.parametrize("seed", range(10))
def test_auc_with_ties_against_scikit_learn(seed: int) -> None:
    logits, y, w = sample(40, 2, seed)
    logits = logits.round()
    score = logits[:, 1] - logits[:, 0]
    assert len(score.unique()) < 20, "there must be ties"
    assert auc(logits, y) == pytest.approx(roc_auc_score(y, score))
    assert auc(logits, y, w) == pytest.approx(roc_auc_score(y, score, sample_weight=w))


def test_auc_by_hand() -> None:
    """Positives 3 and 1, negatives 1 and 0: two pairs won, one tied, one won."""
    logits = torch.tensor([[0.0, 3], [0, 1], [0, 1], [0, 0]])
    assert auc(logits, torch.tensor([1, 1, 0, 0])) == 3.5 / 4


def test_auc_needs_both_classes_and_only_two() -> None:
    assert math.isnan(auc(torch.zeros(3, 2), torch.ones(3, dtype=torch.long)))
    assert math.isnan(auc(torch.zeros(3, 2), torch.zeros(3, dtype=torch.long)))
    with pytest.raises(GlocalError, match="two classes and the model has 3"):
        auc(torch.zeros(3, 3), torch.zeros(3, dtype=torch.long))


def test_calibration_by_hand() -> None:
    """Two at confidence .9, one right; two at .62 and .64 (the bin up to 10/15), both right."""
    logits = logits_of([[0.9, 0.1], [0.9, 0.1], [0.62, 0.38], [0.36, 0.64]])
    y = torch.tensor([0, 1, 0, 1])
    assert ece(logits, y) == pytest.approx((2 * 0.4 + 2 * 0.37) / 4)
    assert mce(logits, y) == pytest.approx(0.4)
    w = torch.tensor([3.0, 1, 1, 1])
    assert ece(logits, y, w) == pytest.approx((4 * 0.15 + 2 * 0.37) / 6)
    assert mce(logits, y, w) == pytest.approx(0.37)


def test_calibration_bins_are_closed_above_and_take_in_certainty() -> None:
    """A confidence of 3/15 is apart from one of .21, and 1 belongs to the last bin."""
    logits = logits_of([[0.2, 0.2, 0.2, 0.2, 0.2], [0.21, 0.2, 0.2, 0.2, 0.19]])
    assert ece(logits, torch.tensor([0, 1])) == pytest.approx((0.8 + 0.21) / 2)
    assert ece(torch.tensor([[100.0, -100.0]]), torch.tensor([0])) == pytest.approx(0.0)
    assert mce(torch.tensor([[100.0, -100.0]]), torch.tensor([1])) == pytest.approx(1.0)


def test_calibration_is_not_a_mean_over_batches() -> None:
    """Errors of opposite sign cancel within a bin, whatever batches they came in."""
    logits, y = logits_of([[0.75, 0.25]] * 4), torch.tensor([0, 0, 0, 1])
    assert ece(logits, y) == pytest.approx(0.0)
    assert (ece(logits[:2], y[:2]) + ece(logits[2:], y[2:])) / 2 == pytest.approx(0.25)


@pytest.mark.parametrize("name", sorted(set(METRICS) - {"auc", "average_precision"}))
def test_positions_of_sequences_are_examples(name: str) -> None:
    metric = METRICS[name]
    logits, y, _ = sample(60)
    w = torch.rand(15, generator=torch.Generator().manual_seed(3))
    seq = logits.view(15, 4, 7), y.view(15, 4)
    assert metric(*seq) == metric(logits, y)
    assert metric(*seq, w) == pytest.approx(metric(logits, y, w.repeat_interleave(4)))
    mask = torch.ones(15, 4)
    mask[:, 3] = 0
    assert metric(*seq, mask) == pytest.approx(metric(seq[0][:, :3], seq[1][:, :3]))


@pytest.mark.parametrize("name", sorted(METRICS))
def test_weights_are_repetitions_and_nothing_is_nan(name: str) -> None:
    metric = METRICS[name]
    logits, y, _ = sample(20, 2)
    times = torch.arange(20) % 4
    again = logits.repeat_interleave(times, 0), y.repeat_interleave(times)
    assert metric(logits, y, times) == pytest.approx(metric(*again))
    assert math.isnan(metric(logits[:0], y[:0]))
    assert math.isnan(metric(logits, y, torch.zeros(20)))


def test_correct_is_what_accuracy_averages() -> None:
    logits, y, w = sample(60)
    assert correct(logits, y).shape == (60,)
    assert float((correct(logits, y) * w).sum() / w.sum()) == pytest.approx(accuracy(logits, y, w))
    share = correct(logits.view(15, 4, 7), y.view(15, 4))
    assert share.shape == (15,)
    assert float(share.mean()) == pytest.approx(accuracy(logits, y))
    hits = torch.eye(2)[torch.tensor([[0, 1, 0, 0], [0, 0, 0, 0]])]
    assert correct(hits, torch.zeros(2, 4, dtype=torch.long)).tolist() == [0.75, 1.0]


def test_shapes_that_do_not_fit_are_refused() -> None:
    logits, y, w = sample(6)
    with pytest.raises(GlocalError, match="need labels of shape"):
        accuracy(logits, y[:5])
    with pytest.raises(GlocalError, match="one for each example"):
        accuracy(logits, y, w[:5])


def test_which_way_is_better() -> None:
    """The truth, said with certainty, scores best by every metric."""
    _, y, _ = sample(20, 2)
    truth, lie = 50 * torch.eye(2)[y], 50 * torch.eye(2)[1 - y]
    for name in set(METRICS) - {"top5"}:
        metric = METRICS[name]
        assert (metric(truth, y) < metric(lie, y)) == (name in LOWER_IS_BETTER), name


def test_top_k_of_few_classes_is_everything() -> None:
    logits, y, _ = sample(20, 3)
    assert METRICS["top5"](logits, y) == 1.0


def test_std_and_median_by_hand() -> None:
    """Deviations −2, −1, 0, 3 from the mean 3: squares 14 over 4 clients."""
    s = fairness([math.nan, 1.0, 6.0, 3.0, 2.0])
    assert s["std"] == pytest.approx(math.sqrt(14 / 4))
    assert s["median"] == 2.5
    assert fairness([0.4, 0.9, 0.1])["median"] == 0.4
    assert fairness([7.0])["std"] == 0.0
    empty = fairness([math.nan])
    assert math.isnan(empty["std"])
    assert math.isnan(empty["median"])


def test_fairness_by_hand() -> None:
    values = [i / 100 for i in range(1, 21)]
    s = fairness(values[::-1], n=[1] * 10 + [3] * 10)
    assert (s["over"], s["clients"]) == ("clients", 20)
    assert s["mean"] == pytest.approx(0.105)
    assert s["worst10"] == pytest.approx(0.015)
    assert s["best10"] == pytest.approx(0.195)
    assert s["gap"] == pytest.approx(0.19)
    # Gini of 1..K is (K² − 1)/(6 K²) of the mean difference: (K − 1)/(3 K).
    assert s["gini"] == pytest.approx(100 * 19 / 60)
    assert s["mean_examples"] == pytest.approx((0.155 + 3 * 0.055) / 4)


def test_a_tenth_is_rounded_up() -> None:
    s = fairness([0.0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    assert (s["worst10"], s["best10"]) == (0.5, 9.5)
    assert fairness([3.0])["worst10"] == 3.0


def test_worst_is_highest_where_lower_is_better() -> None:
    s = fairness([0.1, 0.2, 0.7], lower_is_better=True)
    assert (s["worst10"], s["best10"]) == (0.7, 0.1)
    assert s["gap"] == pytest.approx(0.6)


def test_gini_at_its_limits() -> None:
    assert fairness([0.3] * 7)["gini"] == pytest.approx(0.0, abs=1e-12)
    assert fairness([0.0] * 7)["gini"] == 0.0
    assert fairness([0.0] * 9 + [1.0])["gini"] == pytest.approx(90.0)
    assert math.isnan(fairness([-0.1, 0.2])["gini"])


def test_clients_without_a_value_are_left_out() -> None:
    s = fairness([math.nan, 0.2, 0.4], n=[100, 1, 3])
    assert (s["clients"], s["mean"]) == (2, pytest.approx(0.3))
    assert s["mean_examples"] == pytest.approx(0.35)
    empty = fairness([math.nan], n=[0])
    assert empty["clients"] == 0
    assert all(math.isnan(empty[k]) for k in set(empty) - {"over", "clients"})


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.floats(0.1, 10))
def test_fairness_properties(values: list[float], c: float) -> None:
    s, scaled = fairness(values), fairness([c * v for v in values])
    x = np.array(values)
    assert s["worst10"] <= s["mean"] + 1e-12
    assert s["mean"] <= s["best10"] + 1e-12
    assert 0 <= s["gini"] < 100
    assert scaled["gap"] == pytest.approx(c * s["gap"])
    if x.mean() > 1e-6:
        pairs = np.abs(x[:, None] - x).mean() / (2 * x.mean())
        assert s["gini"] == pytest.approx(100 * pairs, abs=1e-9)
        assert scaled["gini"] == pytest.approx(s["gini"], abs=1e-9)


def gini_of(curve: list[tuple[float, float]]) -> float:
    """Twice the area between the curve and the diagonal, ×100."""
    area = sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(curve))
    return 100 * (1 - 2 * area)


def test_lorenz_by_hand() -> None:
    """Of 3 and 1 the lower has a quarter: areas of 1/16 and 5/16 are under the curve."""
    curve = lorenz([3.0, 1.0])
    assert curve == [(0.0, 0.0), (0.5, 0.25), (1.0, 1.0)]
    assert gini_of(curve) == 25.0 == fairness([3.0, 1.0])["gini"]
    assert lorenz([3.0, math.nan, 1.0]) == curve


def test_lorenz_at_its_limits() -> None:
    diagonal = [(0.0, 0.0), (0.5, 0.5), (1.0, 1.0)]
    assert lorenz([0.0, 0.0]) == lorenz([0.7, 0.7]) == diagonal
    assert lorenz([0.0, 0.0, 0.0, 2.0])[3:] == [(0.75, 0.0), (1.0, 1.0)]
    assert lorenz([math.nan]) == lorenz([]) == []
    assert math.isnan(gini_of(lorenz([-0.1, 0.2])))


@given(st.lists(st.floats(1e-3, 1), min_size=1, max_size=30))
def test_lorenz_has_the_gini_of_fairness(values: list[float]) -> None:
    curve = lorenz(values)
    assert (curve[0], curve[-1]) == ((0.0, 0.0), (1.0, 1.0))
    assert gini_of(curve) == pytest.approx(fairness(values)["gini"], abs=1e-9)
    assert all(y <= x + 1e-12 for x, y in curve)
