"""Scores: the metric that counts on data that models are chosen by, such that higher is better.

Of an error, the score is the error with a minus. A client whose validation data has no value of the
metric (an AUC with one class) goes by its loss instead, in every choice that it has.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from glocal.core.padding import IGNORED, label_counts, over_positions
from glocal.core.threads import one_thread
from glocal.data.federation import Federation
from glocal.evaluation.measures import Measure, of_task, standard_error
from glocal.evaluation.metrics import fairness
from glocal.nn.losses import cross_entropy
from glocal.nn.task import Task


@dataclass(frozen=True)
class Scores:
    """Of some clients' models, [models] each."""

    value: Tensor
    """Higher is better; NaN where there is none."""
    loss: Tensor
    error: Tensor | None = None
    """The standard error of ``value``, or of the loss where there is none; None of accuracies,
    from which it follows."""
    accuracy: Tensor | None = None
    """Where the metric is another and labels are classes."""
    train_loss: Tensor | None = None
    """The loss on training data, where that was asked for."""

    @property
    def key(self) -> Tensor:
        """What models of one client are compared by."""
        return comparable(self.value, self.loss)

    def to(self, device: torch.device) -> Scores:
        """The same on another device."""
        moved: dict[str, Any] = {}
        for each in fields(self):
            held = getattr(self, each.name)
            moved[each.name] = None if held is None else held.to(device)
        return Scores(**moved)


def comparable(value: Tensor, loss: Tensor) -> Tensor:
    """The score, or the negative loss where there is none."""
    return torch.where(value.isnan(), -loss.to(value), value)


def mean_score(value: Tensor, loss: Tensor) -> float:
    """The mean over the clients that have a score; if none has one, by their loss."""
    there = ~value.isnan()
    return float(value[there].mean()) if bool(there.any()) else -float(loss.mean())


@one_thread()
def measured(
    task: Task,
    fed: Federation,
    marks: dict[str, Tensor],
    y: Tensor,
    real: Tensor,
    ids: Tensor,
    *,
    errors: bool = True,
) -> Scores:
    """The scores of models from what they put out: [models, examples], of which some are padding.

    ``ids`` are the clients whose data each has. Without ``errors`` there are no standard errors: a
    user's function need not be called so often for them.
    """
    measure, device, error = of_task(task), y.device, None
    loss, real, y = marks["loss"].cpu(), real.cpu(), y.cpu()
    output = in_unit(fed, marks["logits"].cpu(), ids)
    if not fed.target.classes:
        y = labels_in_unit(fed, y, ids)
    n = real.sum(1)
    weight = real if y.dim() == 2 else real * (y != IGNORED).sum(-1)
    mean_loss = (loss * weight).sum(1) / weight.sum(1)
    if measure.each is not None:
        each = torch.where(real, measure.each(output, y), 0.0)
        mean = each.sum(1) / n
        square = (torch.where(real, each - mean[:, None], 0.0).square().sum(1) + mean.square()) / n
        value, error = measure.sign * mean, (square / n).sqrt()
    else:
        each_client = [(output[i][real[i]], y[i][real[i]]) for i in range(len(ids))]
        values = [measure.value(*examples) for examples in each_client]
        value = measure.sign * torch.tensor(values, dtype=torch.float64)
        if errors:
            found = [_error(measure, v, *e) for v, e in zip(values, each_client, strict=True)]
            of_loss = [
                standard_error(loss[i][real[i]].double(), weight[i][real[i]])
                for i in range(len(ids))
            ]
            of_value, other = (torch.tensor(e, dtype=torch.float64) for e in (found, of_loss))
            error = torch.where(value.isnan(), other, of_value)
    accuracy = None
    if fed.target.classes:
        hit = (output.argmax(-1) == y).float()
        hit = hit if hit.dim() == 2 else over_positions(hit, y)
        accuracy = ((hit * weight).sum(1) / weight.sum(1)).to(device)
    error = None if error is None else error.float().to(device)
    return Scores(value.float().to(device), mean_loss.to(device), error, accuracy)


def compared_by_loss(task: Task) -> bool:
    """Whether each example's loss is enough to know what the metric that counts is."""
    return of_task(task).of_loss is not None and task.losses is cross_entropy


def from_losses(
    task: Task, marks: dict[str, Tensor], weight: Tensor, *, errors: bool = True
) -> Scores:
    """The same as :func:`measured` from losses and hits alone, [models, examples].

    ``weight`` is what each example weighs, 0 where it is padding.
    """
    measure, device = of_task(task), weight.device
    assert measure.of_loss is not None
    loss, correct, w = (part.cpu().double() for part in (marks["loss"], marks["correct"], weight))
    total = w.sum(1)
    mean, accuracy = ((each * w).sum(1) / total for each in (loss, correct))
    value, error = measure.of_loss(mean), None
    if errors:
        # By how much the metric changes with the loss: by as much, or e to the loss.
        slope = value if measure.name == "perplexity" else torch.ones_like(value)
        of_each = zip(loss, w, strict=True)
        found = [standard_error(each[x > 0], x[x > 0]) for each, x in of_each]
        error = (slope * torch.tensor(found, dtype=torch.float64)).float().to(device)
    scores = (measure.sign * value, mean, accuracy)
    value, mean, accuracy = (each.float().to(device) for each in scores)
    return Scores(value, mean, error, accuracy)


def recorded(task: Task, found: Scores, picks: list[str] | None = None) -> dict[str, Any]:
    """What a round's line says of validation data; with ``picks``, of every client, too.

    The worst tenth and Gini's coefficient are over the clients that have a value of the metric.
    """
    measure, line = of_task(task), dict[str, Any]()
    if found.train_loss is not None:
        line["train_loss"] = float(found.train_loss.mean())
    if measure.name == "accuracy":
        line["val_accuracy"] = float(found.value.mean())
    else:
        if found.accuracy is not None:
            line["val_accuracy"] = float(found.accuracy.mean())
        line[f"val_{measure.name}"] = measure.sign * mean_score(found.value, found.loss)
    line["val_loss"] = float(found.loss.mean())
    values = (measure.sign * found.value.double()).tolist()
    spread = fairness(values, lower_is_better=measure.lower)
    line |= {f"val_{figure}": spread[figure] for figure in ("worst10", "gini")}
    if picks is not None:
        error = None if found.error is None else found.error.tolist()
        line["clients"] = [found.value.tolist(), picks, found.loss.tolist(), error]
    return line


def _error(measure: Measure, value: float, output: Tensor, y: Tensor) -> float:
    """The standard error of the metric, where it has a value."""
    if math.isnan(value):
        return math.nan
    return standard_error((measure.quick or measure.values)(output, y), label_counts(y))


def in_unit(fed: Federation, output: Tensor, ids: Tensor) -> Tensor:
    """Outputs [clients, n, ...] of these clients as predictions: numbers in the label's unit."""
    if fed.target.classes:
        return output
    location, scale = (part[:, None] for part in fed.unit_of(ids))
    number = output[..., 0].double()
    return location + scale * (number.exp() if fed.target.task == "counts" else number)


def labels_in_unit(fed: Federation, y: Tensor, ids: Tensor) -> Tensor:
    """The same of labels [clients, n]."""
    location, scale = (part[:, None] for part in fed.unit_of(ids))
    return location + scale * y.double()
