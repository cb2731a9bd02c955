"""All clients' fits in one pool of processes, which need not wait for torch to start.

What comes out is the same for any number of processes.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from glocal.core.processes import begin_worker, lost_workers_explained, without_script
from glocal.core.target import Target
from glocal.experiment import classifiers, families, regressors
from glocal.experiment.families import Floats, Integers, Score, one_thread

LEAST = 1e-6
"""The least that is predicted of a count, over its mean."""

WORTH_PROCESSES = 2e9
"""Operations below which it does not pay to start processes."""


@dataclass(frozen=True)
class Data:
    """A repeat's data, which all of its clients' tasks refer to by rows."""

    x: Floats
    """[rows, features]"""
    y: Integers
    y_train: Integers
    pool: Integers | None
    """Rows of the pooled test set, where clients are evaluated on it."""
    classes: int
    table: bool
    """Whether features are columns of a table, each with a unit of its own."""
    target: Target = field(default_factory=Target)
    metric: Any = "accuracy"
    """What is chosen by: a name, a function, or where one is."""

    @property
    def families(self) -> tuple[families.Family, ...]:
        """What can be fitted."""
        return classifiers.FAMILIES if self.target.classes else regressors.FAMILIES

    def score(self) -> Score | None:
        """What is chosen by, where it is no accuracy; it needs torch, and no other does."""
        if self.metric == "accuracy":
            return None
        import torch

        from glocal.evaluation.measures import measure

        by, target = measure(self.metric, self.target), self.target

        def score(found: Floats, y: Any) -> float:
            output = found if target.classes else _as_output(found, target.task)
            predictions = target.predictions(torch.from_numpy(np.asarray(output)))
            return by.sign * by.value(predictions, target.labels(torch.from_numpy(np.asarray(y))))

        return score


def _as_output(predicted: Floats, task: str) -> Floats:
    """Predicted numbers as a model would have put them out, [n, 1]."""
    if task == "counts":
        predicted = np.log(np.maximum(predicted, LEAST))
    return predicted[:, None]


@dataclass(frozen=True)
class Task:
    """One client of one repeat."""

    repeat: int
    client: int
    rows: Integers
    """Those it learns from."""
    own: Integers
    """Those of its own test examples."""
    fold: Integers
    """The fold of each of the former."""
    seed: int
    limit: float
    """Operations that may go into one family."""

    def operations(self, data: Data) -> float:
        """About how many there are."""
        tested = len(self.own) + (0 if data.pool is None else len(data.pool))
        count = int(self.fold.max(initial=0)) + 1
        sizes = families.Sizes(len(self.rows), data.x.shape[1], data.classes, count, tested)
        each = [f.operations(sizes, f.settings) for f in data.families]
        return sum(min(operations, self.limit) for operations in each)


@dataclass(frozen=True)
class Found:
    """What came of one client."""

    name: str
    score: float
    logits: Floats
    """On the own test examples."""
    pool: Floats | None
    """Which of the pooled test examples are right."""
    left_out: tuple[str, ...]
    loss: float = np.nan
    """By cross-validation, as ``score`` is."""


def solve(task: Task, data: Data) -> Found:
    """Choose, fit and predict."""
    x, y = data.x[task.rows], data.y_train[task.rows]
    about = (task.fold, data.table, task.seed, task.limit, data.score())
    examples = families.Examples(x, y, *about)
    pool = np.zeros(0, np.int64) if data.pool is None else data.pool
    tested = np.concatenate([task.own, pool])
    if data.target.classes:
        best = classifiers.best_fit(examples, data.classes, len(tested))
    else:
        best = regressors.best_fit(examples, len(tested))
    if not isinstance(best, families.Fitted):
        nothing = np.zeros((len(task.own), data.classes), np.float32)
        right = None if data.pool is None else np.zeros(len(pool), bool)
        return Found("", np.nan, nothing, right, best)
    found = best.predict(data.x[tested])
    if not data.target.classes:
        found = _as_output(found, data.target.task)
    logits = found.astype(np.float32)
    own, rest = logits[: len(task.own)], logits[len(task.own) :]
    right = None if data.pool is None else rest.argmax(1) == data.y[pool]
    return Found(best.name, best.score, own, right, best.left_out, best.loss)


_DATA: list[list[Data]] = []
"""In a worker: every repeat's data."""


def _begin(data: list[Data]) -> None:
    begin_worker()
    one_thread()
    _DATA.append(data)


def _work(task: Task) -> Found:
    return solve(task, _DATA[0][task.repeat])


def solve_all(tasks: list[Task], data: list[Data], processes: int) -> Iterator[tuple[Task, Found]]:
    """Every client, as it is done."""
    sizes = [task.operations(data[task.repeat]) for task in tasks]
    # A function of a script is not known to other processes.
    if processes == 1 or callable(data[0].metric) or sum(sizes) < WORTH_PROCESSES:
        for task in tasks:
            with one_thread():  # and as before while somebody else goes on
                result = solve(task, data[task.repeat])
            yield task, result
        return
    context, others = multiprocessing.get_context("spawn"), multiprocessing.active_children()
    pool = ProcessPoolExecutor(processes, context, initializer=_begin, initargs=(data,))
    running, workers = {}, []
    try:
        with lost_workers_explained(), without_script():
            # The largest first, so that none of them is left over at the end.
            for _, i in sorted(zip(sizes, range(len(tasks)), strict=True), reverse=True):
                running[pool.submit(_work, tasks[i])] = tasks[i]
        workers = [p for p in multiprocessing.active_children() if p not in others]
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                with lost_workers_explained():
                    result = future.result()
                yield running.pop(future), result
    finally:
        pool.shutdown(wait=not running, cancel_futures=True)
        if running:  # stopped half-way: what still runs would run for nobody
            for child in workers:
                child.kill()
