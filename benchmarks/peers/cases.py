"""The cases, and the work they come to: drawn once, by glocal, and handed to everybody."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from glocal.core import rng
from glocal.engines.batching import plan
from glocal.nn.losses import cross_entropy
from glocal.studies.bench import RATE, plain_loop
from glocal.training.loop import COHORT, WORK
from peers import nets, ours
from peers.work import Arrays, Work


@dataclass(frozen=True)
class Case:
    """``sampled`` of ``clients`` train a round, each on ``examples`` random ones."""

    name: str
    title: str
    model: str
    input_shape: tuple[int, ...]
    sampled: int
    clients: int
    examples: int
    batch_size: int
    classes: int = 10
    a_turn: int = 1
    """Rounds in a row: of very short ones the first is slower, with nothing left in any cache."""

    def __str__(self) -> str:
        return (
            f"{self.title}, {self.sampled} of {self.clients:,} clients, {self.examples} examples "
            f"each, batch {self.batch_size}"
        )


CASES = (
    Case("mlp", "MLP 784-200-200-10", "mlp(200, 200)", (784,), 10, 100, 600, 10, a_turn=3),
    Case("small", "MLP 64-32-10", "mlp(32)", (64,), 100, 1000, 20, 5, a_turn=5),
    Case("lenet", "LeNet on 3×32×32", "lenet", (3, 32, 32), 10, 10, 500, 50),
)


def drawn(case: Case, folder: Path, rounds: int, seed: int = 0) -> Work:
    """The work of a case: data, the first model, and every round's cohort and batches."""
    draw = torch.Generator().manual_seed(seed)
    shape = (case.clients, case.examples)
    work = Work(
        folder=folder,
        model=case.model,
        input_shape=case.input_shape,
        classes=case.classes,
        batch_size=case.batch_size,
        rate=RATE,
        seed=seed,
        x=torch.randn((*shape, *case.input_shape), generator=draw).numpy(),
        y=torch.randint(case.classes, shape, generator=draw).numpy(),
        cohorts=np.zeros((rounds, case.sampled), dtype=np.int64),
        orders=np.zeros((rounds, case.sampled, case.examples), dtype=np.int64),
        initial=[],
    )
    here, training = ours.begun(work, "sequential")
    for r in range(rounds):
        ids = training.sampler.cohort(case.clients, training.key(COHORT, r))
        keys = rng.fold(rng.fold(training.key(WORK, r), ids), 0)  # a client's, its first phase's
        rows = plan(here.fed.train, ids, keys, 1, case.batch_size)
        for i, client in enumerate(ids.tolist()):
            own = rows.rows[i][rows.weight[i] > 0]
            work.cohorts[r, i], work.orders[r, i] = client, own - client * case.examples
    return replace(work, initial=[p.numpy().copy() for p in here.task.params.values()])


def reference(work: Work) -> Iterator[Arrays]:
    """The model after each round, by the plain loop: what all contestants must end at."""
    module = nets.build(work)
    x = torch.from_numpy(work.x.reshape(-1, *work.input_shape))
    y = torch.from_numpy(work.y.reshape(-1))
    for cohort, orders in zip(work.cohorts, work.orders, strict=True):
        rows = [
            torch.from_numpy(c * work.y.shape[1] + o) for c, o in zip(cohort, orders, strict=True)
        ]
        module.load_state_dict(plain_loop(module, x, y, rows, work.batch_size))
        yield nets.exported(module)


def loss(work: Work, params: Arrays) -> float:
    """The mean cross-entropy on all clients' examples."""
    module = nets.build(replace(work, initial=params))
    x = torch.from_numpy(work.x.reshape(-1, *work.input_shape))
    y = torch.from_numpy(work.y.reshape(-1))
    with torch.no_grad():
        pieces = [
            cross_entropy(module(a), b) for a, b in zip(x.split(4096), y.split(4096), strict=True)
        ]
    return float(torch.cat(pieces).mean())
