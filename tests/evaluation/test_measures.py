"""Metrics against scikit-learn's, their contributions, and functions of the user's own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from glocal.core.errors import GlocalError
from glocal.core.target import TASKS, Target
from glocal.evaluation import influence, measures, metrics
from glocal.evaluation.measures import OF_NUMBERS, measure, named

skm = pytest.importorskip("sklearn.metrics")

CLASSES, NUMBERS = Target(), Target("regression")


def classes(n: int, count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(count, (n,), generator=g)
    logits = torch.randn(n, count, generator=g) + torch.nn.functional.one_hot(y, count)
    return (4 * logits).round() / 4, y  # with ties


def numbers(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    y = 100 + 20 * torch.randn(n, generator=g).double()
    return y + 8 * torch.randn(n, generator=g), y


def probability(logits: Tensor) -> Any:
    return logits.double().softmax(-1).numpy()


THEIRS: dict[str, Callable[[Any, Any], float]] = {
    "accuracy": lambda y, p: skm.accuracy_score(y, p.argmax(1)),
    "balanced_accuracy": lambda y, p: skm.balanced_accuracy_score(y, p.argmax(1)),
    "auc": lambda y, p: skm.roc_auc_score(y, p[:, 1]),
    "average_precision": lambda y, p: skm.average_precision_score(y, p[:, 1]),
    "brier": lambda y, p: skm.brier_score_loss(y, p[:, 1]),
    "log_loss": lambda y, p: skm.log_loss(y, p),
    "f1": lambda y, p: skm.f1_score(y, p.argmax(1)),
}


@pytest.mark.parametrize("name", sorted(THEIRS))
def test_metrics_of_two_classes_are_those_of_scikit_learn(name: str) -> None:
    for seed in range(3):
        logits, y = classes(57, 2, seed)
        ours = named(name).value(logits, y)
        # Ranks from the difference of logits, of which softmax makes other ties of rounding.
        assert ours == pytest.approx(THEIRS[name](y.numpy(), probability(logits)), abs=1e-6)


def test_metrics_of_seven_classes_are_those_of_scikit_learn() -> None:
    logits, y = classes(90, 7)
    p, t = probability(logits), y.numpy()
    assert metrics.f1(logits, y) == pytest.approx(skm.f1_score(t, p.argmax(1), average="macro"))
    assert metrics.balanced_accuracy(logits, y) == pytest.approx(THEIRS["balanced_accuracy"](t, p))
    assert metrics.brier(logits, y) == pytest.approx(((p - np.eye(7)[t]) ** 2).sum(1).mean())


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("mae", "mean_absolute_error"),
        ("rmse", "root_mean_squared_error"),
        ("r2", "r2_score"),
    ],
)
def test_metrics_of_numbers_are_those_of_scikit_learn(name: str, theirs: str) -> None:
    prediction, y = numbers(40)
    expected = getattr(skm, theirs)(y.numpy(), prediction.numpy())
    assert named(name).value(prediction, y) == pytest.approx(expected)


@pytest.mark.parametrize("name", sorted(OF_NUMBERS))
def test_contributions_of_numbers(name: str) -> None:
    """Their mean is the metric, and their spread what it varies by over test sets."""
    by = named(name)
    several = [numbers(80, s) for s in range(200)]
    values = [by.value(*one) for one in several]
    assert float(by.values(*several[0]).mean()) == pytest.approx(values[0], abs=1e-9)
    said = np.mean([float(by.values(*one).std()) / 80**0.5 for one in several])
    assert said == pytest.approx(np.std(values), rel=0.15)


@pytest.mark.parametrize("name", ["average_precision", "balanced_accuracy", "brier", "f1"])
def test_contributions_of_classes(name: str) -> None:
    several = [classes(80, 2, s) for s in range(200)]
    truth = np.std([metrics.METRICS[name](*one) for one in several])
    values = [influence.VALUES[name](*one) for one in several[:10]]
    said = np.mean([float(each.std()) / 80**0.5 for each in values])
    assert said == pytest.approx(truth, rel=0.25)


def test_where_there_is_no_metric() -> None:
    logits, none = torch.randn(4, 2), torch.zeros(4, dtype=torch.int64)
    assert math.isnan(metrics.auc(logits, none))
    assert math.isnan(metrics.average_precision(logits, none))
    assert metrics.f1(torch.tensor([[1.0, 0.0]] * 4), none) == 0.0
    same = torch.ones(4).double()
    assert math.isnan(named("r2").value(same, same))
    assert math.isnan(named("mae").value(same[:0], same[:0]))


def test_every_task_names_metrics_that_there_are() -> None:
    assert set(TASKS["classification"].metrics) == set(metrics.METRICS)
    assert set(TASKS["regression"].metrics) == set(OF_NUMBERS) == set(TASKS["counts"].metrics)
    for name in (*influence.VALUES, *OF_NUMBERS):
        good = [(1.0, 0.0)] if name in OF_NUMBERS else []
        assert named(name).lower == (name in metrics.LOWER_IS_BETTER), good


def test_a_function_of_the_users() -> None:
    def cost(y: Any, prediction: Any) -> float:
        return float(np.abs(y - prediction).mean())

    cost.higher_is_better = False  # type: ignore[attr-defined]
    prediction, y = numbers(30)
    mine, known = measure(cost, NUMBERS), named("mae")
    assert (mine.name, mine.lower, mine.sign) == ("cost", True, -1.0)
    assert mine.value(prediction, y) == pytest.approx(known.value(prediction, y))
    # The jackknife of a mean gives the examples' own.
    assert torch.allclose(mine.values(prediction, y), known.values(prediction, y))


def test_a_function_hides_nothing_that_is_recorded() -> None:
    def loss(y: Any, prediction: Any) -> float:
        return 0.0

    assert measure(loss, NUMBERS).name == "own_loss"  # a line has val_loss already


def test_a_function_of_classes_gets_probabilities() -> None:
    logits, y = classes(30, 2)
    mine = measure(skm.roc_auc_score, CLASSES)
    assert mine.value(logits, y) == pytest.approx(metrics.auc(logits, y), abs=1e-6)
    seen: list[Any] = []
    measure(lambda y, p: seen.append(p) or 1.0, CLASSES).value(*classes(9, 3))
    assert seen[0].shape == (9, 3)
    assert seen[0].sum(1) == pytest.approx(np.ones(9))
    with pytest.raises(GlocalError, match=r"the metric .* cannot be computed: ZeroDivisionError"):
        measure(lambda y, p: 1 / 0, CLASSES).value(logits, y)


def test_the_standard_error_is_never_zero() -> None:
    assert measures.standard_error(torch.full((4,), 3.0)) == pytest.approx(0.75)
    x = torch.randn(2000, generator=torch.Generator().manual_seed(0)).double() + 1
    assert measures.standard_error(x) == pytest.approx(1 / 2000**0.5, rel=0.05)
