"""Every client's accuracy, loss and calibration on given examples, from its logits.

On validation data a client has its own examples and no others: what it chooses, it chooses there.
On test data all clients' examples count, weighted by the client's label shares, where clients
differ in labels alone, and its own test split elsewhere (as in :mod:`glocal.evaluation.summary`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glocal.core.types import Params
from glocal.data.federation import Federation
from glocal.data.split import Split
from glocal.engines.base import padded_rows
from glocal.evaluation import metrics
from glocal.evaluation.trials import label_weights, pool_is_valid
from glocal.training.loop import Training

Scores = dict[str, list[float]]
"""A value for each client, by metric."""

METRICS: dict[str, metrics.Metric] = {
    "accuracy": metrics.accuracy,
    "loss": metrics.cross_entropy,
    "ece": metrics.ece,
    "mce": metrics.mce,
}


@dataclass(frozen=True, eq=False)
class Examples:
    """Rows of the data for each client, [clients, n], and what each counts for (0: padding)."""

    rows: Tensor
    weight: Tensor


def own(fed: Federation, split: Split) -> Examples:
    """Each client's own examples in a split."""
    rows, real = padded_rows(split, torch.arange(len(fed), device=fed.x.device))
    return Examples(rows, real.double())


def tested(fed: Federation) -> Examples:
    """What clients are evaluated on: the pooled test set where it is valid, else their own."""
    if not pool_is_valid(fed):
        return own(fed, fed.test)
    weight = label_weights(fed).to(fed.x.device)
    return Examples(fed.test.rows.expand(len(fed), -1), weight)


def logits_of(training: Training, models: Params, examples: Examples) -> Tensor:
    """Logits of each stacked model on its client's examples."""
    fed, evaluate = training.fed, training.engine.evaluate
    task = training.task.of_clients(torch.arange(len(fed)))
    return evaluate(task.example_logits, models, fed.x, fed.y, examples.rows)["logits"]


def scores(logits: Tensor, fed: Federation, examples: Examples) -> Scores:
    """The metrics of each client."""
    each = list(zip(logits, fed.y[examples.rows], examples.weight, strict=True))
    return {name: [metric(*client) for client in each] for name, metric in METRICS.items()}


def best(on_validation: Sequence[Scores]) -> list[int]:
    """Which of several each client takes: the highest accuracy, ties to the lower loss."""
    picks = []
    for k in range(len(on_validation[0]["accuracy"])):
        offers = [(-s["accuracy"][k], s["loss"][k]) for s in on_validation]
        picks.append(offers.index(min(offers)))
    return picks
