"""The yardstick: what each client could do alone.

Every client trains the same model family on its own data, once for each learning rate of a small
grid, and stops early, both by its own validation accuracy. A few validation examples cannot tell
one epoch from the next, and stopping at their luckiest one makes a weak yardstick; so of each rate
the *last* epoch within one standard error of its best is kept (the rule of Breiman, Friedman,
Olshen and Stone, *Classification and regression trees*, 1984, towards the longer training). A rate
is given up after ``patience`` epochs outside. Of the rates, the one whose kept weights have the
highest accuracy is used, ties to the lower loss. All clients and rates train as one program where
the engine can.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from glocal import rng, tree
from glocal.data.federation import Federation
from glocal.engines.base import Engine, Work
from glocal.errors import ClientError
from glocal.evaluate import score
from glocal.local import Local
from glocal.methods.local import Alone
from glocal.task import Task
from glocal.types import Params, Tree

BLOCK_BYTES = 1 << 30
"""Bytes of models, of all rates, that train at once."""


@dataclass(frozen=True)
class Yardstick:
    """Each client's own model, stacked, and how it was found."""

    models: Params
    rate: Tensor
    """[clients] the learning rate that did best on validation data."""
    epoch: Tensor
    """[clients] after how many epochs."""
    val_accuracy: Tensor
    """[clients] what it reached there."""
    val_loss: Tensor
    """[clients] and its loss there."""


Tick = Callable[[int, int], None]
"""Epochs done and epochs at most, over all blocks of clients."""


def measure(
    task: Task,
    fed: Federation,
    engine: Engine,
    alone: Alone,
    seed: int,
    tick: Tick = lambda done, total: None,
) -> Yardstick:
    """Train every client alone."""
    per_client = 4 * tree.count(task.params) * len(alone.rates) * 3
    everyone = torch.arange(len(fed), device=fed.x.device)
    blocks = torch.split(everyone, max(1, BLOCK_BYTES // per_client))
    total = len(blocks) * alone.max_epochs
    parts = []
    for b, ids in enumerate(blocks):

        def block_tick(epoch: int, b: int = b) -> None:
            tick(b * alone.max_epochs + epoch, total)

        parts.append(_block(task, fed, engine, alone, seed, ids, block_tick))
    return Yardstick(
        tree.cat([p.models for p in parts]),
        torch.cat([p.rate for p in parts]),
        torch.cat([p.epoch for p in parts]),
        torch.cat([p.val_accuracy for p in parts]),
        torch.cat([p.val_loss for p in parts]),
    )


def _block(
    task: Task,
    fed: Federation,
    engine: Engine,
    alone: Alone,
    seed: int,
    ids: Tensor,
    tick: Callable[[int], None],
) -> Yardstick:
    root = rng.fold(rng.key(seed, ids.device), 0xA10E)
    rates = torch.tensor(alone.rates, device=ids.device)
    runs = ids.repeat_interleave(len(rates))  # a run is one client at one rate
    state = _start(task, alone, ids, rates, root)
    best = race(task, fed, engine, alone, state, runs, root, tick)
    return best.by_client(ids, rates, fed)


class Racer(Local, Protocol):
    """A client's training by itself, the model under ``w`` in its state, and when to give up."""

    @property
    def max_epochs(self) -> int:
        """Passes over the data, at most."""
        ...

    @property
    def patience(self) -> int:
        """Epochs outside the best's standard error after which a run is given up."""
        ...


def race(
    task: Task,
    fed: Federation,
    engine: Engine,
    racer: Racer,
    state: Tree,
    runs: Tensor,
    root: Tensor,
    tick: Callable[[int], None],
    best: Best | None = None,
) -> Best:
    """Train all runs (``runs`` says whose data each has), each until it gains nothing more."""
    device = runs.device
    best = best or Best(state["w"], runs, fed.val.counts().to(device)[runs])
    racing = torch.arange(len(runs), device=device)
    for epoch in range(racer.max_epochs):
        down = {"params": {}, "lr": torch.tensor(racer.schedule(epoch), device=device)}
        work = Work(
            task, racer, fed, down, runs[racing], tree.row(state, racing), rng.fold(root, epoch + 1)
        )
        _, new = engine.round(work)
        accuracy, loss = score(task, fed, engine, new["w"], fed.val, runs[racing])
        best.offer(racing, new["w"], accuracy, loss, epoch + 1)
        state = _put(state, racing, new)
        # A run whose loss is no longer finite has a rate too high for it: it will not come back.
        racing = racing[(epoch + 1 - best.epoch[racing] < racer.patience) & loss.isfinite()]
        tick(epoch + 1)
        if len(racing) == 0:
            break
    tick(racer.max_epochs)
    return best


def _start(task: Task, alone: Alone, ids: Tensor, rates: Tensor, root: Tensor) -> Tree:
    """One fresh initialisation for each client, the same for all of its rates."""
    states = [alone.init(task, {}, rng.fold(rng.fold(root, 0), i)) for i in ids]
    stacked = tree.map(lambda x: x.repeat_interleave(len(rates), 0), tree.stack(states))
    return {**stacked, "lr": rates.repeat(len(ids))}


def _put(state: Tree, rows: Tensor, new: Tree) -> Tree:
    return tree.map(lambda old, x: old.index_copy(0, rows, x), state, new)


def standard_error(accuracy: Tensor, n: Tensor) -> Tensor:
    """Of an accuracy on ``n`` examples; one more right and one more wrong keep it above zero."""
    p = (accuracy.clamp(min=0.0) * n + 1) / (n + 2)
    return (p * (1 - p) / n).sqrt()


class Best:
    """The weights of every run's last epoch within a standard error of its best."""

    def __init__(self, w: Params, runs: Tensor, n: Tensor) -> None:
        self.w = w
        self.n = n
        self.top = torch.full((len(runs),), -1.0, device=runs.device)
        self.accuracy = torch.full((len(runs),), -1.0, device=runs.device)
        self.loss = torch.full((len(runs),), torch.inf, device=runs.device)
        self.epoch = torch.zeros(len(runs), dtype=torch.int64, device=runs.device)

    def offer(self, rows: Tensor, w: Params, accuracy: Tensor, loss: Tensor, epoch: int) -> None:
        """Keep what is within a standard error of the best so far."""
        finite = loss.isfinite()
        top = torch.maximum(self.top[rows], torch.where(finite, accuracy, -1.0))
        self.top[rows] = top
        better = finite & (accuracy >= top - standard_error(top, self.n[rows]))
        won = rows[better]
        self.w = _put(self.w, won, tree.row(w, better))
        self.accuracy[won] = accuracy[better]
        self.loss[won] = loss[better]
        self.epoch[won] = epoch

    def by_client(self, ids: Tensor, rates: Tensor, fed: Federation) -> Yardstick:
        """Of each client's runs the most accurate, ties to the lower loss."""
        grid = (len(ids), len(rates))
        accuracy, loss = self.accuracy.view(grid), self.loss.view(grid)
        top = accuracy.amax(1, keepdim=True)
        if bool((top < 0).any()):
            name = fed.names[int(ids[(top.flatten() < 0).nonzero()[0, 0]])]
            tried = ", ".join(f"{r:g}" for r in rates.tolist())
            raise ClientError(
                f"client {name} cannot train alone: its loss is not finite at rates {tried}: "
                "give the yardstick lower ones, as in local(lr=0.001), or look at its data."
            )
        chosen = torch.where(accuracy == top, loss, torch.inf).argmin(1)
        flat = torch.arange(len(ids), device=ids.device) * len(rates) + chosen
        return Yardstick(
            tree.row(self.w, flat),
            rates[chosen],
            self.epoch[flat],
            self.accuracy[flat],
            self.loss[flat],
        )
