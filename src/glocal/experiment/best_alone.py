"""The best alone: what a client could do by itself with the means of a competent practitioner.

Every client cross-validates the model that the federation trains and the families of
:mod:`glocal.experiment.classifiers` on the examples it may learn from (training and validation
where both sides are tuned and refitted, training alone where neither is), and uses the best, fitted
to all of these. Test data has no say in it. Ties go to the simpler: constant, logistic, svm, knn,
the same model, boosting. How much is tried depends on sizes, never on the clock: the same data
gives the same result on any machine.
"""

from __future__ import annotations

import importlib.util
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glocal.core import rng
from glocal.data.federation import Federation
from glocal.data.schema import Schema
from glocal.evaluation import metrics
from glocal.evaluation.evaluate import Outcome, metric_names
from glocal.evaluation.influence import VALUES
from glocal.evaluation.trials import pool_is_valid
from glocal.experiment import classifiers
from glocal.experiment.adaptation_report import compose
from glocal.experiment.client_fits import Data, Found, Task, solve_all
from glocal.experiment.folds import folds_of, learnable

SAME = "same model"

SIMPLEST_FIRST = (classifiers.CONSTANT, "logistic", "svm", "knn", SAME, "boosting")
"""What wins where scores are equal."""


@dataclass(frozen=True)
class Alone:
    """What every client of one repeat fitted alone, and how sure it may be of that."""

    outcome: Outcome
    score: Tensor
    """[clients] the cross-validated accuracy; NaN: there is nothing."""
    left_out: Mapping[str, int]
    """How many clients had too much data for a family."""


def unavailable(fed: Federation) -> str | None:
    """Why nothing but the same model can be tried, in a sentence; None where it can."""
    if not Schema.of(fed).numbers:
        return "the best alone is the same model alone: nothing else here is made for sequences."
    if importlib.util.find_spec("sklearn") is None:
        return (
            "the best alone is the same model alone: the others need scikit-learn, which is not "
            "installed (pip install scikit-learn)."
        )
    return None


def left_out_in_words(left_out: Mapping[str, int], fits: int) -> str:
    """What clients could not try for the size of their data, of so many fits."""
    each = ", ".join(f"{name} in {n} of {fits} fits" for name, n in left_out.items())
    return f"the best alone is chosen without what would take too long on this much data: {each}."


def fit_all(
    federations: Sequence[Federation],
    seeds: Sequence[int],
    *,
    tune: bool,
    repeats: int | None = None,
    tick: Callable[[int, int], None] = lambda done, total: None,
    processes: int = 1,
    metric: str = "accuracy",
) -> list[Alone]:
    """What every client of every repeat fits best, of all families but the same model.

    Args:
        federations: those of some repeats.
        seeds: theirs.
        tune: whether clients learn from their validation data too.
        repeats: how many there are in all, which share what may be spent; by rule these.
        tick: called with the clients done and the clients there are.
        processes: how many work on it; it changes nothing that comes out.
        metric: what better off is measured by.
    """
    clients, repeats = len(federations[0]), repeats or len(federations)
    limit = min(
        classifiers.CLIENT_OPERATIONS,
        classifiers.FEDERATION_OPERATIONS / (clients * repeats),
    )
    tasks = []
    for r, (fed, of_repeat) in enumerate(zip(federations, seeds, strict=True)):
        for k in range(clients):
            rows, own = learnable(fed, k, tune=tune).cpu().numpy(), fed.test.of(k).cpu().numpy()
            seed = rng.seed_of(rng.fold(rng.fold(rng.key(of_repeat), 0xBE57), k)) % 2**32
            fold = folds_of(fed, k, of_repeat, tune=tune)
            tasks.append(Task(r, k, rows, own, fold, seed, limit))
    found: dict[tuple[int, int], Found] = {}
    flat: dict[int, Any] = {}
    data = [_data(fed, flat) for fed in federations]
    for task, result in solve_all(tasks, data, processes):
        found[task.repeat, task.client] = result
        tick(len(found), len(tasks))
    return [
        _gathered(fed, [found[r, k] for k in range(clients)], metric)
        for r, fed in enumerate(federations)
    ]


def _data(fed: Federation, flat: dict[int, Any]) -> Data:
    """A repeat's data; inputs that several repeats have in common are one array."""
    x = flat.setdefault(id(fed.x), fed.x.flatten(1).cpu().numpy())
    y, y_train, pool = (t.cpu().numpy() for t in (fed.y, fed.y_train, fed.test.rows))
    table = len(Schema.of(fed).shape) == 1
    return Data(x, y, y_train, pool if pool_is_valid(fed) else None, fed.classes, table)


def _gathered(fed: Federation, found: Sequence[Found], metric: str) -> Alone:
    """All clients of a repeat."""
    by_metric: dict[str, list[float]] = {name: [] for name in metric_names(fed.classes)}
    own: list[Tensor] = []
    contributions: list[Tensor] = []
    for k, client in enumerate(found):
        logits, y = torch.from_numpy(client.logits), fed.y[fed.test.of(k)].cpu()
        for name, values in by_metric.items():
            values.append(metrics.METRICS[name](logits, y))
        own.append(metrics.correct(logits, y))
        if metric != "accuracy":
            contributions.append(VALUES[metric](logits, y))
    right = [client.pool for client in found if client.pool is not None]
    pool = torch.stack([torch.from_numpy(r) for r in right]).float() if right else None
    names = [client.name for client in found]
    outcome = Outcome(by_metric, own, pool, names, metric, contributions or None)
    score = torch.tensor([client.score for client in found], dtype=torch.float64)
    return Alone(outcome, score, Counter(name for client in found for name in client.left_out))


def best_of(same: Alone, others: Alone) -> Alone:
    """Each client's better of two by its cross-validated accuracy, ties to the simpler."""
    take = [_wins(same, others, k) for k in range(len(same.score))]
    outcome = compose([others.outcome if wins else same.outcome for wins in take])
    score = torch.where(torch.tensor(take), others.score, same.score)
    return Alone(outcome, score, others.left_out)


def _wins(same: Alone, others: Alone, k: int) -> bool:
    """Whether a client takes the second rather than the first."""
    a, b = float(same.score[k]), float(others.score[k])
    if math.isnan(b) or math.isnan(a):
        return not math.isnan(b)
    if abs(a - b) > 1e-9:
        return b > a
    rank = SIMPLEST_FIRST.index
    return rank(others.outcome.chosen[k]) < rank(SAME)
