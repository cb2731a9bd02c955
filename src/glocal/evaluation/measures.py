"""The metric that counts: what better off is measured by, and what models are chosen by.

A measure takes what Target.predictions gives (logits of classes; numbers in the label's unit) and
labels. It is one of the metrics of :mod:`glocal.evaluation.metrics` (classes) and
:mod:`glocal.evaluation.errors` (numbers), or a function of the user's::

    def cost(y, prediction): ...        # numpy arrays, one entry for each example; returns a number
    cost.higher_is_better = False       # without it, higher is better

``prediction`` is the number predicted; of two classes the probability of the second, [n]; of more
the probabilities, [n, classes]. A function's contributions of examples are the jackknife's
(:mod:`glocal.evaluation.influence`): right for functions that change little with one example.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from glocal.core.errors import GlocalError, unknown
from glocal.core.own_code import is_own, load_own, told
from glocal.core.target import TASKS, Target
from glocal.data.federation import Federation
from glocal.evaluation import errors, influence, metrics
from glocal.nn.task import Task

Chosen = str | Callable[[Any, Any], float]
"""A metric by name, a function of the user's, or where it is, as ``own.py:cost``."""

RECORDED = ("loss", "worst10", "gini")
"""What a round's line says of validation data beside metrics, which no function's name may hide."""

QUICK = 20
"""Parts that the jackknife of a user's function leaves out one by one while models are chosen."""


@dataclass(frozen=True)
class Measure:
    """A metric with its direction, and what each example contributes to it."""

    name: str
    value: Callable[[Tensor, Tensor], float]
    values: Callable[[Tensor, Tensor], Tensor]
    """Whose mean is ``value``, and whose spread is its sampling error; one for each example."""
    lower: bool = False
    """Whether lower is better."""
    each: Callable[[Tensor, Tensor], Tensor] | None = None
    """``values`` where those of an example do not depend on the others: of any shape [..., n]."""
    quick: Callable[[Tensor, Tensor], Tensor] | None = None
    """``values`` roughly, where they take long."""
    of_loss: Callable[[Tensor], Tensor] | None = None
    """The metric as a function of the mean cross-entropy, where it is one: then models can be
    compared without what they put out, which of words is large."""

    @property
    def sign(self) -> float:
        """What makes higher better."""
        return -1.0 if self.lower else 1.0


EACH: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mae": errors.mae_each,
}

OF_LOSS: dict[str, Callable[[Tensor], Tensor]] = {
    "cross_entropy": torch.clone,
    "log_loss": torch.clone,
    "perplexity": torch.exp,
}

OF_NUMBERS = {
    "mae": (errors.mae, errors.mae_each),
    "rmse": (errors.rmse, errors.rmse_values),
    "r2": (errors.r2, errors.r2_values),
}


@cache
def named(name: str) -> Measure:
    """A measure by its name."""
    lower = name in metrics.LOWER_IS_BETTER
    if name in OF_NUMBERS:
        value, values = OF_NUMBERS[name]
        return Measure(name, value, values, lower, EACH.get(name))
    if name in influence.VALUES:
        of_loss = OF_LOSS.get(name)
        return Measure(name, metrics.METRICS[name], influence.VALUES[name], lower, of_loss=of_loss)
    raise unknown("metric", name, [*influence.VALUES, *OF_NUMBERS])


def measure(chosen: Chosen, target: Target) -> Measure:
    """The measure of this task."""
    if is_own(chosen):
        chosen = load_own(str(chosen), "metric")
    if isinstance(chosen, str):
        return named(chosen)
    return _own(chosen, target)


def _own(function: Callable[[Any, Any], float], target: Target) -> Measure:
    """A measure of the user's own function."""
    name = str(getattr(function, "__name__", type(function).__name__))
    if name in metrics.METRICS or name in OF_NUMBERS or name in RECORDED:
        name = f"own_{name}"

    def value(output: Tensor, y: Tensor) -> float:
        if not len(y):
            return math.nan
        prediction = output
        if target.classes:
            p = output.double().softmax(-1)
            prediction = p[..., 1] if p.shape[-1] == 2 else p
        try:
            return float(function(y.cpu().numpy(), prediction.cpu().numpy()))
        except Exception as error:  # whatever the user's function raises
            raise GlocalError(
                f"the metric {name} cannot be computed: {told(error)}; it must take labels and "
                "predictions of some examples and return a number (NaN where there is none)."
            ) from error

    lower = not getattr(function, "higher_is_better", True)
    values = partial(influence.pseudo_values, value)
    return Measure(name, value, values, lower, quick=partial(values, most=QUICK))


def of_task(task: Task) -> Measure:
    """What a task is measured by."""
    return named(task.metric) if isinstance(task.metric, str) else task.metric


def default(target: Target) -> str:
    """The metric where none is chosen."""
    return target.kind.metrics[0]


def fitting(fed: Federation) -> list[str]:
    """The metrics by name that a verdict can be about."""
    names = fed.target.kind.metrics
    if not fed.target.classes:
        return list(names)
    if fed.y.dim() > 1:
        names = ("accuracy", "top5", "cross_entropy", "log_loss", "perplexity", "brier", "ece")
    return [
        name
        for name in names
        if name in influence.VALUES
        and (name not in ("auc", "average_precision") or fed.classes == 2)
        and (name != "top5" or fed.classes > 5)
        and (name != "perplexity" or not fed.x.is_floating_point())
    ]


def check(chosen: Chosen) -> None:
    """Raise if there is no such metric, whatever the task."""
    if callable(chosen) or is_own(chosen):
        return
    if chosen not in {name for kind in TASKS.values() for name in kind.metrics} - {"mce"}:
        raise unknown("metric", chosen, [*influence.VALUES, *OF_NUMBERS])


def has_no_value(name: str, of: str) -> str:
    """What is said where nobody has a value of the metric on these (``"test"``) examples."""
    return (
        f"the metric {name} has no value (NaN) on any client's {of} examples, so nothing can be "
        "told or chosen by it: try it on the labels and predictions of one client, or choose "
        "another with metric=."
    )


SHARES = ("accuracy", "balanced_accuracy", "auc", "average_precision", "f1", "top5")
"""Metrics of which 1 is all there is."""

NAMES = {
    "auc": "AUC",
    "average_precision": "average precision",
    "balanced_accuracy": "balanced accuracy",
    "brier": "Brier score",
    "cross_entropy": "cross-entropy",
    "ece": "ECE",
    "f1": "F1",
    "log_loss": "log loss",
    "mae": "MAE",
    "r2": "R²",
    "rmse": "RMSE",
}
"""Metrics that are not written as they are named."""


def relative(name: str, lower: bool) -> bool:
    """Whether a difference that counts as none is a share of what a client has alone.

    That is so of errors and of functions whose unit is not known; R² and shares have one of 1.
    """
    return lower or name not in (*SHARES, "r2")


def check_same(same: float, chosen: Chosen | None) -> None:
    """Raise if ``same`` is no share where it must be one."""
    if same >= 1 and chosen in SHARES:
        raise GlocalError(
            f"same is a share, which must be below 1, not {same:g}: {same:g} points are "
            f"{same / 100:g}."
        )


def check_fits(chosen: Chosen, fed: Federation, same: float | None = None) -> None:
    """Raise if a metric by name, or the difference that counts as none, does not fit the data."""
    check_same(same or 0.0, chosen)
    if callable(chosen) or is_own(chosen):
        return
    names = fitting(fed)
    if chosen not in names:
        what = f"{fed.classes} classes" if fed.target.classes else fed.target.task
        raise GlocalError(f"{chosen} is no metric of {what}: use one of {', '.join(names)}.")


def standard_error(values: Tensor, weight: Tensor | None = None) -> float:
    """Of a mean of contributions; one more example, which contributes 0, keeps it above zero."""
    n = len(values)
    if not n:
        return math.nan
    w = torch.ones_like(values) if weight is None else weight.to(values) * (n / weight.sum())
    mean = (w * values).mean()
    return math.sqrt(float((w * (values - mean)).square().sum() + mean.square())) / n
