"""What every client's model does on data: the outcomes that metrics and verdicts are made of.

A client that has several candidate models (a grid of mixtures, say) gets the one that does best on
its own validation data, by the metric that counts; ties go to the lower validation loss. Test data
is only ever looked at through the model already chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.padding import IGNORED
from glocal.core.threads import one_thread
from glocal.core.types import Params
from glocal.data.federation import Federation
from glocal.data.split import Split
from glocal.engines.base import Engine, padded_rows
from glocal.evaluation import metrics
from glocal.evaluation.measures import Measure, named, of_task
from glocal.evaluation.scores import Scores, compared_by_loss, from_losses, measured
from glocal.nn.task import Task

Models = Callable[[Tensor], dict[str, Params]]
"""Client ids to their candidate models, stacked."""

CHUNK_BYTES = 1 << 30
"""Bytes of stacked models and their logits that are held at once."""


@dataclass(frozen=True)
class Outcome:
    """Every client's chosen model on its own test split, and on the pooled one where asked for."""

    metrics: dict[str, list[float]]
    """Each metric on the own test split, one value for each client."""
    own: list[Tensor]
    """For each client: how right each of its test examples is (0 or 1; of a sequence, a share);
    where labels are numbers, the same as ``values``."""
    pool: Tensor | None
    """[clients, pooled examples]: the same of every client's test examples, in their order."""
    chosen: list[str]
    """Which candidate each client uses."""
    metric: str = "accuracy"
    """What better off is measured by."""
    values: list[Tensor] | None = None
    """For each client: what each of its test examples contributes to that metric, where it is
    another than accuracy (:mod:`glocal.evaluation.influence`)."""
    lower: bool = False
    """Whether lower is better."""
    constant: list[float] = field(default_factory=list)
    """For each client: the metric of the best constant prediction, from its training labels."""

    def of_examples(self) -> list[Tensor]:
        """For each client: each test example's contribution to the metric."""
        return self.own if self.values is None else self.values


def metric_names(classes: int) -> list[str]:
    """The metrics that make sense for so many classes; of 1, those of numbers."""
    if classes == 1:
        return ["mae", "rmse", "r2"]
    names = ["accuracy", "cross_entropy", "ece", "mce"]
    return names + (["auc"] if classes == 2 else []) + (["top5"] if classes > 5 else [])


class Recorder:
    """The metrics of ``clients``, added in this order, and what their test examples contribute."""

    def __init__(self, fed: Federation, measure: Measure, clients: Tensor) -> None:
        self.fed, self.measure, self.clients = fed, measure, clients
        self.metrics: dict[str, list[float]] = {name: [] for name in metric_names(fed.classes)}
        self.metrics.setdefault(measure.name, [])
        self.own: list[Tensor] = []
        self.values: list[Tensor] = []

    @one_thread()
    def add(self, output: Tensor, y: Tensor) -> None:
        """Of one client; on the host, since on a device every small operation is a launch."""
        target, measure = self.fed.target, self.measure
        output, y = target.predictions(output), target.labels(y)
        for name, values in self.metrics.items():
            if name == measure.name:
                values.append(measure.value(output, y))
            elif target.classes:
                values.append(metrics.METRICS[name](output, y))
            else:
                values.append(named(name).value(output, y))
        if measure.name != "accuracy":
            self.values.append(measure.values(output, y))
        self.own.append(metrics.correct(output, y) if target.classes else self.values[-1])

    def outcome(self, pool: Tensor | None, chosen: list[str]) -> Outcome:
        """Of all of them."""
        measure = self.measure
        constant = constants(self.fed, measure, self.clients)
        about = (measure.name, self.values or None, measure.lower, constant)
        return Outcome(self.metrics, self.own, pool, chosen, *about)


@one_thread()
def constants(fed: Federation, measure: Measure, clients: Tensor) -> list[float]:
    """The metric, for each client, of what it would predict without looking at the features.

    Of classes, the shares that they have in its training data; of numbers the median there, or the
    mean where large errors count for more (``rmse``, ``r2``).
    """
    found, y, target = [], fed.y.cpu(), fed.target
    y_train = fed.y_train.cpu()
    for k in clients.tolist():
        train, test = y_train[fed.train.of(k).cpu()], y[fed.test.of(k).cpu()]
        if target.classes:
            counts = torch.bincount(train[train != IGNORED], minlength=fed.classes).double()
            output = (counts / counts.sum()).clamp(min=1e-6).log().expand(*test.shape, -1)
        else:
            train, test = target.labels(train), target.labels(test)
            typical = train.mean() if measure.name in ("rmse", "r2") else train.median()
            output = typical.expand(len(test))
        found.append(measure.value(output, test))
    return found


def outcomes(
    task: Task,
    fed: Federation,
    engine: Engine,
    models: Models,
    *,
    pool: bool,
    one_for_all: bool = False,
    at_most: int | None = None,
) -> Outcome:
    """Choose on validation data, then evaluate on test data, a block of clients after another.

    With ``pool`` every client's model is also evaluated on all clients' test data. With
    ``one_for_all`` all clients have the same candidates: if it is one, it is evaluated once.
    ``at_most`` limits a block of clients where memory is not all that does. What better off is
    measured by is the task's.
    """
    everyone = torch.arange(len(fed), device=fed.x.device)
    if one_for_all and (only := _only(models(everyone[:1]))):
        return _of_one_model(task, fed, engine, *only, pool=pool)
    blocks = torch.split(everyone, min(at_once(task, fed), at_most or len(fed)))
    return together([block_outcome(task, fed, engine, models, ids, pool=pool) for ids in blocks])


def _of_one_model(
    task: Task, fed: Federation, engine: Engine, name: str, model: Params, *, pool: bool
) -> Outcome:
    """Of all clients, which have the same model."""
    everyone = torch.arange(len(fed), device=fed.x.device)
    recorder, pools = Recorder(fed, of_task(task), everyone), []
    start = fed.test.start.tolist()
    for ids in torch.split(everyone, at_once(task, fed)):
        first, last = start[int(ids[0])], start[int(ids[-1]) + 1]
        rows = fed.test.rows[first:last]
        found = engine.evaluate(task.example_logits, model, fed.x, fed.y, rows.unsqueeze(0))
        logits, y = found["logits"][0].cpu(), fed.y[rows].cpu()
        for k in ids.tolist():
            part = slice(start[k] - first, start[k + 1] - first)
            recorder.add(logits[part], y[part])
        if pool:
            pools.append(metrics.correct(logits, y).to(torch.float32))
    everywhere = torch.cat(pools).expand(len(fed), -1) if pool else None
    return recorder.outcome(everywhere, [name] * len(fed))


def block_outcome(
    task: Task, fed: Federation, engine: Engine, models: Models, ids: Tensor, *, pool: bool
) -> Outcome:
    """Of some clients, whose models are looked at together."""
    recorder = Recorder(fed, of_task(task), ids)
    model, chosen = pick(task, fed, engine, models(ids), ids)
    rows, real = padded_rows(fed.test, ids)
    some = task.of_clients(ids)
    logits = engine.evaluate(some.example_logits, model, fed.x, fed.y, rows)["logits"].cpu()
    y, counted = fed.y[rows].cpu(), real.cpu()
    for i in range(len(ids)):
        recorder.add(logits[i][counted[i]], y[i][counted[i]])
    everywhere = None
    if pool:
        shared = fed.test.rows.expand(len(ids), -1)
        found = engine.evaluate(some.example_metrics, model, fed.x, fed.y, shared)
        everywhere = found["correct"].cpu()
    return recorder.outcome(everywhere, chosen)


def together(parts: Sequence[Outcome]) -> Outcome:
    """The outcomes of blocks of clients as one."""
    pools = [part.pool for part in parts if part.pool is not None]
    return replace(
        parts[0],
        metrics={
            name: [x for part in parts for x in part.metrics[name]] for name in parts[0].metrics
        },
        own=[x for part in parts for x in part.own],
        pool=torch.cat(pools) if pools else None,
        chosen=[name for part in parts for name in part.chosen],
        values=[x for part in parts for x in part.values or ()] or None,
        constant=[x for part in parts for x in part.constant],
    )


def pick(
    task: Task, fed: Federation, engine: Engine, candidates: dict[str, Params], ids: Tensor
) -> tuple[Params, list[str]]:
    """Each client's best candidate on its own validation data, and its name."""
    names = list(candidates)
    if len(names) == 1:
        return candidates[names[0]], names * len(ids)
    where = (fed.val, ids)
    scores = [scored(task, fed, engine, candidates[n], *where, errors=False) for n in names]
    value = torch.stack([each.key for each in scores])
    loss = torch.stack([each.loss for each in scores])
    # Only candidates of the best value compete on loss.
    best = torch.where(value == value.amax(0), loss, torch.inf).argmin(0)
    stacked = tree.stack([candidates[n] for n in names])
    picked = tree.map(lambda x: x[best, torch.arange(len(ids), device=best.device)], stacked)
    return picked, [names[int(i)] for i in best.tolist()]


def score(
    task: Task, fed: Federation, engine: Engine, models: Params, split: Split, ids: Tensor
) -> tuple[Tensor, Tensor]:
    """The score (by rule, accuracy) and loss of each stacked model on its client's part."""
    found = scored(task, fed, engine, models, split, ids)
    return found.value, found.loss


def scored(
    task: Task,
    fed: Federation,
    engine: Engine,
    models: Params,
    split: Split,
    ids: Tensor,
    *,
    errors: bool = True,
) -> Scores:
    """The scores of each stacked model on its client's part of a split."""
    rows, real = padded_rows(split, ids)
    task = task.of_clients(ids)
    by_accuracy, weight = of_task(task).name == "accuracy", real * fed.label_counts[rows]
    if by_accuracy or compared_by_loss(task):
        marks = engine.evaluate(task.example_metrics, models, fed.x, fed.y, rows)
        if not by_accuracy:
            return from_losses(task, marks, weight, errors=errors)
        n = weight.sum(1)
        return Scores((marks["correct"] * weight).sum(1) / n, (marks["loss"] * weight).sum(1) / n)
    marks = engine.evaluate(task.example_outputs, models, fed.x, fed.y, rows)
    return measured(task, fed, marks, fed.y[rows], real, ids, errors=errors)


def validation(
    task: Task, fed: Federation, engine: Engine, models: Models, *, one_for_all: bool = False
) -> tuple[Tensor, Tensor]:
    """Every client's validation score and loss, with its best candidate."""
    found, _ = validated(task, fed, engine, models, one_for_all=one_for_all)
    return found.value, found.loss


def validated(
    task: Task,
    fed: Federation,
    engine: Engine,
    models: Models,
    *,
    one_for_all: bool = False,
    training: Split | None = None,
    errors: bool = True,
) -> tuple[Scores, list[str]]:
    """Every client's validation scores, and the name of its best candidate.

    Without ``errors`` there are no standard errors. With some ``training`` rows of each client,
    also the loss of what it uses on those.
    """
    everyone = torch.arange(len(fed), device=fed.x.device)
    if one_for_all and (only := _only(models(everyone[:1]))):
        name, model = only
        loss = None
        if training is not None:
            loss = _training_loss(task, fed, engine, model, training, everyone, same=True)
        by_accuracy, by_loss = of_task(task).name == "accuracy", compared_by_loss(task)
        examples = task.example_metrics if by_accuracy or by_loss else task.example_outputs
        marks = engine.evaluate(examples, model, fed.x, fed.y, fed.val.rows.unsqueeze(0))
        if not by_accuracy:
            rows, real = padded_rows(fed.val, everyone)
            place = torch.zeros(len(fed.y), dtype=torch.int64, device=rows.device)
            place[fed.val.rows] = torch.arange(len(fed.val.rows), device=rows.device)
            of_client = {what: values[0][place[rows]] for what, values in marks.items()}
            if by_loss:
                weight = real * fed.label_counts[rows]
                found = from_losses(task, of_client, weight, errors=errors)
                return replace(found, train_loss=loss), [name] * len(fed)
            found = measured(task, fed, of_client, fed.y[rows], real, everyone, errors=errors)
            return replace(found, train_loss=loss), [name] * len(fed)
        each = [_by_client(fed, fed.val, marks[what][0]) for what in ("correct", "loss")]
        return Scores(each[0], each[1], train_loss=loss), [name] * len(fed)
    parts, chosen = [], []
    for ids in torch.split(everyone, at_once(task, fed)):
        model, names = pick(task, fed, engine, models(ids), ids)
        chosen += names
        part = scored(task, fed, engine, model, fed.val, ids, errors=errors)
        if training is not None:
            loss = _training_loss(task, fed, engine, model, training, ids)
            part = replace(part, train_loss=loss)
        parts.append(part)
    together: dict[str, Any] = {}
    for each_of in fields(Scores):
        held = [getattr(part, each_of.name) for part in parts]
        together[each_of.name] = None if held[0] is None else torch.cat(held)
    return Scores(**together), chosen


def _training_loss(
    task: Task,
    fed: Federation,
    engine: Engine,
    models: Params,
    training: Split,
    ids: Tensor,
    *,
    same: bool = False,
) -> Tensor:
    """[clients] the loss of each stacked model on its client's rows; or of one model for all."""
    if same:
        rows = training.rows.unsqueeze(0)
        found = engine.evaluate(task.example_metrics, models, fed.x, fed.y_train, rows)
        return _by_client(fed, training, found["loss"][0])
    rows, real = padded_rows(training, ids)
    task = task.of_clients(ids)
    found = engine.evaluate(task.example_metrics, models, fed.x, fed.y_train, rows)
    weight = real * fed.label_counts[rows]
    return (found["loss"] * weight).sum(1) / weight.sum(1)


def _by_client(fed: Federation, split: Split, values: Tensor) -> Tensor:
    """The mean of the values of each client's rows, each as often as it has labels."""
    n, weight = split.counts().to(values.device), fed.label_counts[split.rows]
    owner = torch.repeat_interleave(torch.arange(len(split), device=values.device), n)
    total, of_values = (
        torch.zeros(len(split), device=values.device).index_add(0, owner, each)
        for each in (weight, weight * values)
    )
    return of_values / total


def _only(candidates: dict[str, Params]) -> tuple[str, Params] | None:
    """The candidate, if there is no other: of several, each client picks its own."""
    return next(iter(candidates.items())) if len(candidates) == 1 else None


def at_once(task: Task, fed: Federation) -> int:
    """Clients whose models are looked at together."""
    answers = int(fed.test.counts().max()) * fed.classes * (fed.y[0].numel() or 1)
    return max(1, CHUNK_BYTES // (4 * (task.size + answers)))
