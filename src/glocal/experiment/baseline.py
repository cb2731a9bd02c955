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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from glocal.core import rng, tree
from glocal.core.errors import ClientError
from glocal.core.types import Params, Tree
from glocal.data.federation import Federation
from glocal.engines.base import CohortRound, Engine, Workload
from glocal.engines.batching import PlanSize
from glocal.evaluation.evaluate import score
from glocal.methods.local import LocalTraining
from glocal.nn.task import Task

if TYPE_CHECKING:
    from glocal.training.checkpoint import Keeper

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

OnEpoch = Callable[[int, Tree], None]
"""Epochs done of a race, and where it stands."""


def measure(
    task: Task,
    fed: Federation,
    engine: Engine,
    alone: LocalTraining,
    seed: int,
    tick: Tick = lambda done, total: None,
    keeper: Keeper | None = None,
) -> Yardstick:
    """Train every client alone; with a keeper, from where that was left."""
    per_client = 4 * tree.count(task.params) * len(alone.rates) * 3
    everyone = torch.arange(len(fed), device=fed.x.device)
    blocks = torch.split(everyone, max(1, BLOCK_BYTES // per_client))
    total = len(blocks) * alone.max_epochs
    parts: list[Yardstick] = []
    standing: Tree | None = None
    began = 0
    if keeper is not None and (kept := keeper.last()) is not None:
        if "yardstick" in kept.trees:
            return Yardstick(**tree.to(kept.trees["yardstick"], everyone.device))
        began = kept.number // alone.max_epochs
        parts = [Yardstick(**tree.to(kept.trees["parts"], everyone.device))] if began else []
        standing = tree.to(kept.trees["race"], everyone.device)
    for b, ids in enumerate(blocks[began:], began):

        def on_epoch(epoch: int, standing: Tree, b: int = b) -> None:
            at = b * alone.max_epochs + epoch
            tick(at, total)
            if keeper is not None and epoch < alone.max_epochs:

                def what() -> tuple[dict[str, Any], Tree]:
                    return {}, {"parts": _joined(parts) if parts else {}, "race": standing}

                keeper.after(at, what, last=False)

        parts.append(_block(task, fed, engine, alone, seed, ids, on_epoch, standing))
        tick((b + 1) * alone.max_epochs, total)
        standing = None
    whole = _joined(parts)
    if keeper is not None:
        keeper.after(total, lambda: ({}, {"yardstick": whole}), last=True)
    return Yardstick(**whole)


def _joined(parts: Sequence[Yardstick]) -> Tree:
    """Blocks of clients as one."""
    return tree.cat([{f.name: getattr(p, f.name) for f in fields(p)} for p in parts])


def _block(
    task: Task,
    fed: Federation,
    engine: Engine,
    alone: LocalTraining,
    seed: int,
    ids: Tensor,
    on_epoch: OnEpoch,
    standing: Tree | None,
) -> Yardstick:
    root = rng.fold(rng.key(seed, ids.device), 0xA10E)
    rates = torch.tensor(alone.rates, device=ids.device)
    runs = ids.repeat_interleave(len(rates))  # a run is one client at one rate
    state = standing["state"] if standing else _start(task, alone, ids, rates, root)
    best = race(task, fed, engine, alone, state, runs, root, on_epoch, standing=standing)
    return best.by_client(ids, rates, fed)


def race(
    task: Task,
    fed: Federation,
    engine: Engine,
    racer: LocalTraining,
    state: Tree,
    runs: Tensor,
    root: Tensor,
    on_epoch: OnEpoch = lambda epoch, standing: None,
    best: Best | None = None,
    standing: Tree | None = None,
) -> Best:
    """Train all runs (``runs`` says whose data each has), each until it gains nothing more.

    ``on_epoch`` is called with the epochs done and where the race stands, from which it can be
    taken up again.
    """
    device = runs.device
    best = best or Best(state["w"], runs, fed.val.counts().to(device)[runs])
    racing = torch.arange(len(runs), device=device)
    began = 0
    if standing is not None:
        best.found = standing["best"]
        racing, began = standing["racing"], int(standing["epoch"])
    steps = sum(PlanSize.of(fed.train, phase, racer.batch_size).steps for phase in racer.phases)
    workload = Workload(steps * racer.max_epochs, len(runs), varies=True)
    for epoch in range(began, racer.max_epochs):
        if len(racing) == 0:
            break
        down = {"params": {}, "lr": torch.tensor(racer.schedule(epoch), device=device)}
        work = CohortRound(
            task,
            racer,
            fed,
            down,
            runs[racing],
            tree.row(state, racing),
            rng.fold(root, epoch + 1),
            workload=workload,
        )
        _, new = engine.round(work)
        accuracy, loss = score(task, fed, engine, new["w"], fed.val, runs[racing])
        best.offer(racing, new["w"], accuracy, loss, epoch + 1)
        state = _put(state, racing, new)
        # A run whose loss is no longer finite has a rate too high for it: it will not come back.
        racing = racing[(epoch + 1 - best.epoch[racing] < racer.patience) & loss.isfinite()]
        now = {"state": state, "best": best.found, "racing": racing}
        on_epoch(epoch + 1, {**now, "epoch": torch.tensor(epoch + 1)})
    return best


def _start(task: Task, alone: LocalTraining, ids: Tensor, rates: Tensor, root: Tensor) -> Tree:
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


_FOUND = ("top", "accuracy", "loss", "epoch")


class Best:
    """The weights of every run's last epoch within a standard error of its best."""

    def __init__(self, w: Params, runs: Tensor, n: Tensor) -> None:
        self.w = w
        self.n = n
        self.top = torch.full((len(runs),), -1.0, device=runs.device)
        self.accuracy = torch.full((len(runs),), -1.0, device=runs.device)
        self.loss = torch.full((len(runs),), torch.inf, device=runs.device)
        self.epoch = torch.zeros(len(runs), dtype=torch.int64, device=runs.device)

    @property
    def found(self) -> Tree:
        """All that was found so far, as a tree."""
        return {"w": self.w, **{name: getattr(self, name) for name in _FOUND}}

    @found.setter
    def found(self, found: Tree) -> None:
        self.w = found["w"]
        for name in _FOUND:
            setattr(self, name, found[name])

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
