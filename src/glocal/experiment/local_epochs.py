"""Epochs of clients that train alone: of one federation, or of several repeats side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glocal.core import rng, tree
from glocal.core.types import Tree
from glocal.data.federation import Federation
from glocal.engines.base import CohortRound, Engine, Lanes, Workload
from glocal.engines.batching import PlanSize
from glocal.engines.lanes import SideBySide
from glocal.methods.local import LocalTraining
from glocal.nn.task import Task

OnEpoch = Callable[[int, Tree], None]
"""Epochs done of a block, and its state, from which it can be resumed."""


@dataclass(frozen=True)
class Keys:
    """The keys of clients' epochs: ``fold(fold(root, epoch), number)``."""

    root: Tensor
    """One for all clients; or, where several repeats are side by side, one for each client."""
    number: Tensor | None = None
    """[clients]: each client's number within its repeat."""

    def of(self, epoch: int, ids: Tensor) -> Tensor:
        """Of these clients, [clients]."""
        if self.number is None:
            return rng.fold(rng.fold(self.root, epoch), ids)
        return rng.fold(rng.fold(self.root[ids], epoch), self.number[ids])


@dataclass(frozen=True)
class SideClients:
    """Clients of one federation, or of several repeats side by side."""

    fed: Federation
    """Of all of them: client ``k`` of repeat ``r`` has the number ``r · K + k``."""
    federations: tuple[Federation, ...]
    seeds: tuple[int, ...]
    keys: Keys
    turns: tuple[int, ...] = ()
    """How many runs of clients train at once, stage after stage."""

    @classmethod
    def of(cls, federations: Sequence[Federation], seeds: Sequence[int]) -> SideClients:
        """Rows that are the same in all repeats are not copied."""
        device, count = federations[0].x.device, len(federations[0])
        roots = [rng.fold(rng.key(seed, device), 0xA10E) for seed in seeds]
        places = torch.arange(count, device=device)
        each = torch.cat([fed.number_of(places) for fed in federations])
        keys = Keys(torch.stack(roots).repeat_interleave(count), each)
        fed = SideBySide.of(federations).whole if len(federations) > 1 else federations[0]
        return cls(fed, tuple(federations), tuple(seeds), keys)


@dataclass(frozen=True)
class Epochs:
    """How some runs (clients with a setting each) train, epoch by epoch."""

    task: Task
    fed: Federation
    engine: Engine
    local: LocalTraining
    runs: Tensor
    """[runs] whose data each has."""
    keys: Keys
    workload: Workload

    @classmethod
    def of(
        cls,
        task: Task,
        fed: Federation,
        engine: Engine,
        local: LocalTraining,
        runs: Tensor,
        keys: Keys,
        turns: tuple[int, ...] = (),
    ) -> Epochs:
        """With the workload that an engine may prepare for: ``turns`` of so many runs at once."""
        n, batch = fed.train.counts(), local.batch_size
        steps = sum(PlanSize.of(n, p.epochs, p.steps, batch).steps for p in local.phases)
        workload = Workload(steps * local.max_epochs, len(runs), varies=True, turns=turns)
        return cls(task, fed, engine, local, runs, keys, workload)

    def one(self, epoch: int, state: Tree, active: Tensor) -> Tree:
        """The new states of the active runs after one more epoch (from 0)."""
        device, ids = self.runs.device, self.runs[active]
        down: Tree = {"params": {}, "lr": torch.tensor(self.local.schedule(epoch), device=device)}
        key, lanes = rng.fold(self.keys.root.flatten()[0], epoch + 1), None
        if self.keys.number is not None:
            down = tree.stack([down])
            lanes = Lanes(torch.zeros_like(ids), self.keys.of(epoch + 1, ids))
        work = CohortRound(
            self.task,
            self.local,
            self.fed,
            down,
            ids,
            tree.row(state, active),
            key,
            workload=self.workload,
            lanes=lanes,
        )
        return self.engine.round(work)[1]


def train_for(
    epochs: Epochs, state: Tree, wanted: Tensor, on_epoch: OnEpoch, resumed: Tree
) -> Tree:
    """The states after as many epochs as each run wants, [runs]."""
    began = 0
    if resumed:
        state, began = resumed["state"], int(resumed["epoch"])
    for epoch in range(began, int(wanted.max())):
        active = (wanted > epoch).nonzero().flatten()
        state = put(state, active, epochs.one(epoch, state, active))
        on_epoch(epoch + 1, {"state": state, "epoch": torch.tensor(epoch + 1)})
    return state


def start(
    task: Task,
    clients: SideClients,
    local: LocalTraining,
    runs: Tensor,
    rates: Tensor,
    decays: Tensor,
) -> Tree:
    """States at these rates and weight decays, [runs] each, with the client's initialisation."""
    ids, places = torch.unique_consecutive(runs, return_inverse=True)
    keys = clients.keys.of(0, ids)
    states = [local.init(task.of_clients(ids[i : i + 1]), {}, keys[i]) for i in range(len(ids))]
    # Where some of what a client tries has a decay, all has, if of zero: it is one program then.
    decay = {"decay": decays} if local.decays else {}
    return {**tree.row(tree.stack(states), places), "lr": rates, **decay}


def put(state: Tree, rows: Tensor, new: Tree) -> Tree:
    """The states with new ones in some rows."""
    return tree.map(lambda old, x: old.index_copy(0, rows, x), state, new)
