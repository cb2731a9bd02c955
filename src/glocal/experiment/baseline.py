"""The local baseline: what each client could do alone.

Every client trains the same model family on its own data, once for each learning rate of a small
grid, and stops early, both by its own validation accuracy. A few validation examples cannot tell
one epoch from the next, and stopping at their luckiest one makes a weak baseline; so of each rate
the *last* epoch within one standard error of its best is kept (the rule of Breiman, Friedman,
Olshen and Stone, *Classification and regression trees*, 1984, towards the longer training). A rate
is given up after ``patience`` epochs outside. Of the rates, the one whose kept weights have the
highest accuracy is used, ties to the lower loss.

Clients train in blocks, each with all of its rates as one program where the engine can; finished
models go to a store that may be on disk, so that only a block of them is ever in memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
from torch import Tensor

from glocal.core import rng, tree
from glocal.core.errors import ClientError
from glocal.core.types import Params, Tree
from glocal.data.federation import Federation
from glocal.engines.base import CohortRound, Engine, Workload
from glocal.engines.batching import PlanSize
from glocal.engines.gradients import gradients
from glocal.evaluation.evaluate import score
from glocal.methods.local import LocalTraining
from glocal.nn.task import Task
from glocal.training.client_state.placement import Storage
from glocal.training.client_state.store import ClientStore

if TYPE_CHECKING:
    from glocal.training.checkpoint import CheckpointWriter

GRID = (0.03, 0.1, 0.3)
"""The learning rates that clients may pick from, unless ``local`` is given others."""

BLOCK_BYTES = 1 << 30
"""Bytes of models, of all rates, that train at once."""


Models = TypeVar("Models", Params, ClientStore)


@dataclass(frozen=True)
class Selected(Generic[Models]):
    """Clients' models, stacked or in a store that is read by rows, and how each was found."""

    models: Models
    rate: Tensor
    """[clients] the learning rate that did best on validation data."""
    epoch: Tensor
    """[clients] after how many epochs."""
    val_accuracy: Tensor
    """[clients] what it reached there."""
    val_loss: Tensor
    """[clients] and its loss there."""
    trained: Tensor
    """[clients] epochs at all rates together, also those after the one that was kept."""
    seconds: float = 0.0
    """What that took, since it was begun or resumed."""


FIGURES = {
    "rate": torch.float32,
    "epoch": torch.int64,
    "val_accuracy": torch.float32,
    "val_loss": torch.float32,
    "trained": torch.int64,
}
"""What is known of every client's model, whether it is in memory or not."""

Tick = Callable[[int, int], None]
"""Epochs done and epochs at most, over all blocks of clients."""

OnEpoch = Callable[[int, Tree], None]
"""Epochs done of a block, and its state, from which it can be resumed."""


def rates_of(local: LocalTraining) -> tuple[float, ...]:
    """The learning rates that a client may pick from."""
    return local.rates or GRID


def known_by(local: LocalTraining) -> str:
    """A text that is equal for equal settings: a local baseline is measured once for each."""
    return f"{local.settings} {rates_of(local)} {local.max_epochs} {local.patience}"


def train_baseline(
    task: Task,
    fed: Federation,
    engine: Engine,
    local: LocalTraining,
    seed: int,
    tick: Tick = lambda done, total: None,
    writer: CheckpointWriter | None = None,
    storage: Storage | None = None,
) -> Selected[ClientStore]:
    """Train every client alone; with a writer of checkpoints, from its last checkpoint on."""
    began, storage = time.monotonic(), storage or Storage()
    clients, device, epochs = len(fed), fed.x.device, local.max_epochs
    size = 4 * tree.count(task.params)
    rates = torch.tensor(rates_of(local), device=device)
    root = rng.fold(rng.key(seed, device), 0xA10E)
    block_size = max(1, BLOCK_BYTES // (3 * size * len(rates)))
    blocks = torch.split(torch.arange(clients, device=device), block_size)
    saved = writer.last() if writer else None

    def no_models() -> ClientStore:
        return storage.store(clients, size, device, rows=clients)

    if saved is None:
        done, models, in_block = 0, no_models(), None
        figures = {k: torch.zeros(clients, dtype=d, device=device) for k, d in FIGURES.items()}
    else:
        done, stored = saved.number // epochs, saved.trees["clients"]
        models = storage.restored(no_models, clients, stored, device, 0, saved.number)
        in_block, figures = (tree.to(saved.trees[k], device) for k in ("block", "figures"))

    def finished(epoch: int, state: Tree, last: bool = False) -> None:
        """Epochs of all blocks together are done, and the state is that of the present block."""
        tick(epoch, len(blocks) * epochs)

        def contents() -> tuple[dict[str, Any], Tree]:
            return {}, {"clients": models.packed(epoch), "figures": figures, "block": state}

        if writer is not None:
            writer.after(epoch, contents, last)

    for b in range(done, len(blocks)):

        def on_epoch(epoch: int, state: Tree, before: int = b * epochs) -> None:
            if epoch < epochs:
                finished(before + epoch, state)

        ids = blocks[b]
        runs = ids.repeat_interleave(len(rates))  # a run is one client at one rate
        state = in_block["state"] if in_block else _start(task, local, ids, rates, root)
        best = train(task, fed, engine, local, state, runs, root, on_epoch, resumed=in_block)
        block = best.by_client(ids, rates, fed)
        models.scatter(ids, block.models)
        for name, values in figures.items():
            values[ids] = getattr(block, name)
        in_block = None
        finished((b + 1) * epochs, {}, last=b + 1 == len(blocks))
    return Selected(models, **figures, seconds=time.monotonic() - began)


def gradients_of(local: LocalTraining, found: Selected[Any], fed: Federation) -> int:
    """The gradients that all clients computed, at all rates, to find their models."""
    each = gradients(local, fed.train.counts().cpu(), {})
    return int((each * found.trained.cpu()).sum())


def train(
    task: Task,
    fed: Federation,
    engine: Engine,
    local: LocalTraining,
    state: Tree,
    runs: Tensor,
    root: Tensor,
    on_epoch: OnEpoch = lambda epoch, state: None,
    best: Best | None = None,
    resumed: Tree | None = None,
) -> Best:
    """Train all runs (``runs`` says whose data each has), each until it gains nothing more.

    ``on_epoch`` is called with the epochs done and all that they left, which ``resumed`` takes.
    """
    device = runs.device
    best = best or Best(state["w"], runs, fed.val.counts().to(device)[runs])
    active = torch.arange(len(runs), device=device)
    began = 0
    if resumed:
        best.state = dict(resumed["best"])
        active, began = resumed["active"], int(resumed["epoch"])
    n, batch = fed.train.counts(), local.batch_size
    steps = sum(PlanSize.of(n, p.epochs, p.steps, batch).steps for p in local.phases)
    workload = Workload(steps * local.max_epochs, len(runs), varies=True)
    for epoch in range(began, local.max_epochs):
        if len(active) == 0:
            break
        down = {"params": {}, "lr": torch.tensor(local.schedule(epoch), device=device)}
        now, key = tree.row(state, active), rng.fold(root, epoch + 1)
        work = CohortRound(task, local, fed, down, runs[active], now, key, workload=workload)
        _, new = engine.round(work)
        accuracy, loss = score(task, fed, engine, new["w"], fed.val, runs[active])
        best.offer(active, new["w"], accuracy, loss, epoch + 1)
        state = _put(state, active, new)
        # A run whose loss is no longer finite has a rate too high for it: it will not come back.
        active = active[
            (epoch + 1 - best.state["epoch"][active] < local.patience) & loss.isfinite()
        ]
        left = {"state": state, "best": dict(best.state), "active": active}
        on_epoch(epoch + 1, {**left, "epoch": torch.tensor(epoch + 1)})
    return best


def _start(task: Task, local: LocalTraining, ids: Tensor, rates: Tensor, root: Tensor) -> Tree:
    """One fresh initialisation for each client, the same for all of its rates."""
    states = [local.init(task, {}, rng.fold(rng.fold(root, 0), i)) for i in ids]
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
        none = torch.full((len(runs),), -1.0, device=runs.device)
        self.n = n
        self.state: Tree = {
            "w": w,
            "top": none,
            "accuracy": none.clone(),
            "loss": torch.full_like(none, torch.inf),
            "epoch": torch.zeros_like(none, dtype=torch.int64),
            "trained": torch.zeros_like(none, dtype=torch.int64),
        }

    def offer(self, rows: Tensor, w: Params, accuracy: Tensor, loss: Tensor, epoch: int) -> None:
        """Keep what is within a standard error of the best so far."""
        state, finite = self.state, loss.isfinite()
        state["trained"][rows] = epoch
        top = torch.maximum(state["top"][rows], torch.where(finite, accuracy, -1.0))
        state["top"][rows] = top
        better = finite & (accuracy >= top - standard_error(top, self.n[rows]))
        won = rows[better]
        state["w"] = _put(state["w"], won, tree.row(w, better))
        state["accuracy"][won] = accuracy[better]
        state["loss"][won] = loss[better]
        state["epoch"][won] = epoch

    def by_client(self, ids: Tensor, rates: Tensor, fed: Federation) -> Selected[Params]:
        """Of each client's runs the most accurate, ties to the lower loss."""
        accuracy, loss = (self.state[k].view(len(ids), len(rates)) for k in ("accuracy", "loss"))
        top = accuracy.amax(1, keepdim=True)
        if bool((top < 0).any()):
            name = fed.names[int(ids[(top.flatten() < 0).nonzero()[0, 0]])]
            tried = ", ".join(f"{r:g}" for r in rates.tolist())
            raise ClientError(
                f"client {name} cannot train alone: its loss is not finite at rates {tried}: "
                "give the local baseline lower ones, as in local(lr=0.001), or look at its data."
            )
        chosen = torch.where(accuracy == top, loss, torch.inf).argmin(1)
        flat = torch.arange(len(ids), device=ids.device) * len(rates) + chosen
        best = tree.row(self.state, flat)
        trained = self.state["trained"].view(len(ids), len(rates)).sum(1)
        figures = (best["epoch"], best["accuracy"], best["loss"], trained)
        return Selected(best["w"], rates[chosen], *figures)
