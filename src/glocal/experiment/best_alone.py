"""The best alone: what a client could do by itself with the means of a competent practitioner.

Every client cross-validates the model that the federation trains and the families of
:mod:`glocal.experiment.families` on the examples it may learn from (training and validation
where both sides are tuned and refitted, training alone where neither is), and uses the best, fitted
to all of these: by the metric that counts. Test data has no say in it. Ties go to the simpler:
constant, logistic or ridge, svm, knn, the same model, boosting. How much is tried depends on sizes,
never on the clock: the same data gives the same result on any machine.
"""

from __future__ import annotations

import importlib.util
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glocal.core import rng
from glocal.core.progress import NO_TICK, Tick
from glocal.data.federation import Federation
from glocal.data.schema import Schema
from glocal.evaluation.evaluate import Outcome, Recorder
from glocal.evaluation.measures import Chosen, measure
from glocal.evaluation.trials import pool_is_valid
from glocal.experiment import families
from glocal.experiment.adapted_clients import compose
from glocal.experiment.client_fits import Data, Found, Task, solve_all
from glocal.experiment.folds import folds_of, learnable

SAME = "same model"

SIMPLEST_FIRST = (*(families.CONSTANT, "logistic", "ridge", "svm", "svr", "knn", SAME, "boosting"),)
"""What wins where scores are equal."""


@dataclass(frozen=True)
class Alone:
    """What every client of one repeat fitted alone, and how sure it may be of that."""

    outcome: Outcome
    score: Tensor
    """[clients] the cross-validated score, by rule the accuracy; NaN: there is none."""
    left_out: Mapping[str, int]
    """How many clients had too much data for a family."""
    loss: Tensor | None = None
    """[clients] the cross-validated loss, by which clients without a score choose."""


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
    tick: Tick = NO_TICK,
    processes: int = 1,
    metric: Chosen = "accuracy",
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
    limit = min(families.CLIENT_OPERATIONS, families.FEDERATION_OPERATIONS / (clients * repeats))
    tasks = []
    for r, (fed, of_repeat) in enumerate(zip(federations, seeds, strict=True)):
        for k in range(clients):
            rows, own = learnable(fed, k, tune=tune).cpu().numpy(), fed.test.of(k).cpu().numpy()
            number = int(fed.number_of(torch.tensor(k)))
            seed = rng.seed_of(rng.fold(rng.fold(rng.key(of_repeat), 0xBE57), number)) % 2**32
            fold = folds_of(fed, k, of_repeat, tune=tune)
            tasks.append(Task(r, k, rows, own, fold, seed, limit))
    found: dict[tuple[int, int], Found] = {}
    flat: dict[int, Any] = {}
    data = [_data(fed, flat, metric) for fed in federations]
    for task, result in solve_all(tasks, data, processes):
        found[task.repeat, task.client] = result
        tick(len(found), len(tasks))
    return [
        _gathered(fed, [found[r, k] for k in range(clients)], metric)
        for r, fed in enumerate(federations)
    ]


def _data(fed: Federation, flat: dict[int, Any], metric: Chosen) -> Data:
    """A repeat's data; inputs that several repeats have in common are one array."""
    x = flat.setdefault(id(fed.x), fed.x.flatten(1).cpu().numpy())
    y, y_train, pool = (t.cpu().numpy() for t in (fed.y, fed.y_train, fed.test.rows))
    table = len(Schema.of(fed).shape) == 1
    pooled = pool if pool_is_valid(fed) else None
    return Data(x, y, y_train, pooled, fed.classes, table, fed.target, metric)


def _gathered(fed: Federation, found: Sequence[Found], metric: Chosen) -> Alone:
    """All clients of a repeat."""
    everyone = torch.arange(len(fed))
    recorder = Recorder(fed, measure(metric, fed.target), everyone)
    for k, client in enumerate(found):
        recorder.add(torch.from_numpy(client.logits), fed.y[fed.test.of(k)].cpu())
    right = [client.pool for client in found if client.pool is not None]
    pool = torch.stack([torch.from_numpy(r) for r in right]).float() if right else None
    outcome = recorder.outcome(pool, [client.name for client in found])
    score, loss = (
        torch.tensor([getattr(client, of) for client in found], dtype=torch.float64)
        for of in ("score", "loss")
    )
    left_out = Counter(name for client in found for name in client.left_out)
    return Alone(outcome, score, left_out, loss)


def best_of(same: Alone, others: Alone) -> Alone:
    """Each client's better of two by its cross-validated score, ties to the simpler."""
    take = [_wins(same, others, k) for k in range(len(same.score))]
    outcome = compose([others.outcome if wins else same.outcome for wins in take])
    taken = torch.tensor(take)
    score = torch.where(taken, others.score, same.score)
    loss = None
    if same.loss is not None and others.loss is not None:
        loss = torch.where(taken, others.loss, same.loss)
    return Alone(outcome, score, others.left_out, loss)


def _wins(same: Alone, others: Alone, k: int) -> bool:
    """Whether a client takes the second rather than the first."""
    if not others.outcome.chosen[k]:  # it has fitted nothing
        return False
    a, b = float(same.score[k]), float(others.score[k])
    if (math.isnan(a) or math.isnan(b)) and same.loss is not None and others.loss is not None:
        a, b = -float(same.loss[k]), -float(others.loss[k])
    if math.isnan(b) or math.isnan(a):
        return not math.isnan(b)
    if abs(a - b) > 1e-9:
        return b > a
    rank = SIMPLEST_FIRST.index
    return rank(others.outcome.chosen[k]) < rank(SAME)
