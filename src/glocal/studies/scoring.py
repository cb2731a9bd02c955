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
from glocal.evaluation.summary import label_weights, pool_is_valid
from glocal.training.loop import Training

Scores = dict[str, list[float]]
"""A value for each client, by metric."""

METRICS = {"accuracy": "accuracy", "loss": "cross_entropy", "ece": "ece", "mce": "mce"}


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
    fed, task = training.fed, training.task
    evaluate = training.engine.evaluate
    return evaluate(task.example_logits, models, fed.x, fed.y, examples.rows)["logits"]


def scores(logits: Tensor, fed: Federation, examples: Examples) -> Scores:
    """The metrics of each client."""
    y = fed.y[examples.rows]
    return {
        name: [
            metrics.METRICS[metric](logits[k], y[k], examples.weight[k]) for k in range(len(logits))
        ]
        for name, metric in METRICS.items()
    }


def best(on_validation: Sequence[Scores]) -> list[int]:
    """Which of several each client takes: the highest accuracy, ties to the lower loss."""
    clients = range(len(on_validation[0]["accuracy"]))
    return [
        min(
            range(len(on_validation)),
            key=lambda i, k=k: (-on_validation[i]["accuracy"][k], on_validation[i]["loss"][k]),  # type: ignore[misc]
        )
        for k in clients
    ]
