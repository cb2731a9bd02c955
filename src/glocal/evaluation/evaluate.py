"""What every client's model does on data: the outcomes that metrics and verdicts are made of.

A client that has several candidate models (a grid of mixtures, say) gets the one that does best on
its own validation data; ties go to the lower validation loss. Test data is only ever looked at
through the model already chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.threads import one_thread
from glocal.core.types import Params
from glocal.data.federation import Federation
from glocal.data.split import Split
from glocal.engines.base import Engine, padded_rows
from glocal.evaluation import metrics
from glocal.evaluation.influence import VALUES
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
    """For each client: how right each of its test examples is (0 or 1; of a sequence, a share)."""
    pool: Tensor | None
    """[clients, pooled examples]: the same of every client's test examples, in their order."""
    chosen: list[str]
    """Which candidate each client uses."""
    metric: str = "accuracy"
    """What better off is measured by."""
    values: list[Tensor] | None = None
    """For each client: what each of its test examples contributes to that metric, where it is
    another than accuracy (:mod:`glocal.evaluation.influence`)."""

    def of_examples(self) -> list[Tensor]:
        """For each client: each test example's contribution to the metric."""
        return self.own if self.values is None else self.values


def metric_names(classes: int) -> list[str]:
    """The metrics that make sense for so many classes."""
    names = ["accuracy", "cross_entropy", "ece", "mce"]
    return names + (["auc"] if classes == 2 else []) + (["top5"] if classes > 5 else [])


def outcomes(
    task: Task,
    fed: Federation,
    engine: Engine,
    models: Models,
    *,
    pool: bool,
    one_for_all: bool = False,
    at_most: int | None = None,
    metric: str = "accuracy",
) -> Outcome:
    """Choose on validation data, then evaluate on test data, a block of clients after another.

    With ``pool`` every client's model is also evaluated on all clients' test data. With
    ``one_for_all`` all clients have the same candidates: if it is one, it is evaluated once.
    ``at_most`` limits a block of clients where memory is not all that does. ``metric`` is what
    better off is measured by.
    """
    everyone = torch.arange(len(fed), device=fed.x.device)
    pooled = fed.test.rows.unsqueeze(0)
    by_metric: dict[str, list[float]] = {name: [] for name in metric_names(fed.classes)}
    own: list[Tensor] = []
    pools: list[Tensor] = []
    chosen: list[str] = []
    contributions: list[Tensor] = []

    @one_thread()
    def record(logits: Tensor, y: Tensor) -> None:
        """Of one client; on the host, since on a device every small operation is a launch."""
        for name, values in by_metric.items():
            values.append(metrics.METRICS[name](logits, y))
        own.append(metrics.correct(logits, y))
        if metric != "accuracy":
            contributions.append(VALUES[metric](logits, y))

    def found(pool: Tensor | None, chosen: list[str]) -> Outcome:
        return Outcome(by_metric, own, pool, chosen, metric, contributions or None)

    if one_for_all and (only := _only(models(everyone[:1]))):
        name, model = only
        logits = engine.evaluate(task.example_logits, model, fed.x, fed.y, pooled)["logits"][0]
        logits, y, start = logits.cpu(), fed.y[fed.test.rows].cpu(), fed.test.start.tolist()
        for k in range(len(fed)):
            part = slice(start[k], start[k + 1])
            record(logits[part], y[part])
        correct = metrics.correct(logits, y).to(torch.float32)
        everywhere = correct.expand(len(fed), -1) if pool else None
        return found(everywhere, [name] * len(fed))

    for ids in torch.split(everyone, min(at_once(task, fed), at_most or len(fed))):
        model, names = pick(task, fed, engine, models(ids), ids)
        chosen += names
        rows, real = padded_rows(fed.test, ids)
        logits = engine.evaluate(task.example_logits, model, fed.x, fed.y, rows)["logits"].cpu()
        y, counted = fed.y[rows].cpu(), real.cpu()
        for i in range(len(ids)):
            record(logits[i][counted[i]], y[i][counted[i]])
        if pool:
            shared = pooled.expand(len(ids), -1)
            pools.append(
                engine.evaluate(task.example_metrics, model, fed.x, fed.y, shared)["correct"].cpu()
            )
    return found(torch.cat(pools) if pool else None, chosen)


def pick(
    task: Task, fed: Federation, engine: Engine, candidates: dict[str, Params], ids: Tensor
) -> tuple[Params, list[str]]:
    """Each client's best candidate on its own validation data, and its name."""
    names = list(candidates)
    if len(names) == 1:
        return candidates[names[0]], names * len(ids)
    scores = [score(task, fed, engine, candidates[n], fed.val, ids) for n in names]
    accuracy = torch.stack([a for a, _ in scores])
    loss = torch.stack([b for _, b in scores])
    # Only candidates of the best accuracy compete on loss.
    best = torch.where(accuracy == accuracy.amax(0), loss, torch.inf).argmin(0)
    stacked = tree.stack([candidates[n] for n in names])
    picked = tree.map(lambda x: x[best, torch.arange(len(ids), device=best.device)], stacked)
    return picked, [names[int(i)] for i in best.tolist()]


def score(
    task: Task, fed: Federation, engine: Engine, models: Params, split: Split, ids: Tensor
) -> tuple[Tensor, Tensor]:
    """Accuracy and loss of each stacked model on its client's part of a split."""
    rows, real = padded_rows(split, ids)
    marks = engine.evaluate(task.example_metrics, models, fed.x, fed.y, rows)
    n = real.sum(1)
    return (marks["correct"] * real).sum(1) / n, (marks["loss"] * real).sum(1) / n


def validation(
    task: Task, fed: Federation, engine: Engine, models: Models, *, one_for_all: bool = False
) -> tuple[Tensor, Tensor]:
    """Every client's validation accuracy and loss, with its best candidate."""
    accuracy, loss, _ = validated(task, fed, engine, models, one_for_all=one_for_all)
    return accuracy, loss


def validated(
    task: Task, fed: Federation, engine: Engine, models: Models, *, one_for_all: bool = False
) -> tuple[Tensor, Tensor, list[str]]:
    """Every client's validation accuracy and loss, and the name of its best candidate."""
    everyone = torch.arange(len(fed), device=fed.x.device)
    if one_for_all and (only := _only(models(everyone[:1]))):
        name, model = only
        marks = engine.evaluate(
            task.example_metrics, model, fed.x, fed.y, fed.val.rows.unsqueeze(0)
        )
        n = fed.val.counts()
        owner = torch.repeat_interleave(everyone, n)

        def by_client(values: Tensor) -> Tensor:
            return torch.zeros(len(fed), device=values.device).index_add(0, owner, values) / n

        each = [by_client(marks[what][0]) for what in ("correct", "loss")]
        return each[0], each[1], [name] * len(fed)
    parts, chosen = [], []
    for ids in torch.split(everyone, at_once(task, fed)):
        model, names = pick(task, fed, engine, models(ids), ids)
        chosen += names
        parts.append(score(task, fed, engine, model, fed.val, ids))
    return torch.cat([a for a, _ in parts]), torch.cat([b for _, b in parts]), chosen


def _only(candidates: dict[str, Params]) -> tuple[str, Params] | None:
    """The candidate, if there is no other: of several, each client picks its own."""
    return next(iter(candidates.items())) if len(candidates) == 1 else None


def at_once(task: Task, fed: Federation) -> int:
    """Clients whose models are looked at together."""
    answers = int(fed.test.counts().max()) * fed.classes * (fed.y[0].numel() or 1)
    return max(1, CHUNK_BYTES // (4 * (task.size + answers)))
