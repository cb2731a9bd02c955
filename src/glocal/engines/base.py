"""The protocol of engines: an engine runs the client's half of a method for many clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor, nn

from glocal.core import rng, tree
from glocal.core.types import Downlink, Params, Tree, Uplink
from glocal.data.federation import Federation
from glocal.data.split import Split
from glocal.nn.task import Task
from glocal.slots.client import Local

WASTE = 0.15
"""Share of the steps that may be computed for clients that have finished already."""


@dataclass(frozen=True)
class Workload:
    """What is known of a training beforehand, for an engine to prepare for."""

    steps: int
    """Steps of the longest client, in all rounds together."""
    cohort: int
    """Clients in a round, as expected."""
    varies: bool = False
    """Whether rounds have more and fewer than that."""
    turns: tuple[int, ...] = ()
    """Where trainings are side by side: the clients that train at once in this one, and in others
    before and after it that have the same steps."""

    @property
    def worth(self) -> int:
        """Its steps as steps of some 20 clients, by what is saved where they are compiled.

        A step of more clients takes longer, though not as many times longer: measured with 20, 100
        and 180 of them (docs/measurements/speed.md).
        """
        return sum(self.steps * max(50, 30 + clients) // 50 for clients in self.turns) or self.steps


@dataclass(frozen=True)
class Lanes:
    """Which of several trainings each client of a cohort belongs to."""

    number: Tensor
    """[clients]: the place of its downlink in the stacked ones."""
    keys: Tensor
    """[clients]: its own key, from its training's."""


@dataclass(frozen=True)
class CohortRound:
    """One round for one cohort."""

    task: Task
    local: Local
    fed: Federation
    down: Downlink
    """What the server sent; with ``lanes``, what each server sent, stacked."""
    ids: Tensor
    """[clients] indices into the federation, on the device."""
    states: Tree
    """Client states, stacked in the order of ``ids``; an empty tree if the method keeps none."""
    key: Tensor
    """The round's key: a client's own is ``fold(key, number)``."""
    needs_loss: bool = False
    workload: Workload | None = None
    """The training that this round belongs to; None: it is a single round."""
    part: Tensor | None = None
    """[clients] the part of its mini-batches that each does, above 0 and up to 1; None: all."""
    lanes: Lanes | None = None
    """Where several trainings' rounds are one (:mod:`glocal.engines.lanes`)."""

    @property
    def keys(self) -> Tensor:
        """One key for each client."""
        if self.lanes is not None:
            return self.lanes.keys
        return rng.fold(self.key, self.fed.number_of(self.ids))

    @property
    def down_dim(self) -> int | None:
        """The dimension of :meth:`received` that is the clients'; None: all receive the same."""
        return None if self.lanes is None else 0

    def received(self) -> Downlink:
        """What the clients receive: the same for all, or stacked, one for each."""
        return self.down if self.lanes is None else tree.row(self.down, self.lanes.number)

    @property
    def convolutional(self) -> bool:
        """Whether clients train convolutions, the task's or the method's own."""
        weights = tree.leaves(self.local.networks(self.down))
        own = any(w.dim() - (self.lanes is not None) >= 4 for w in weights)
        return own or convolutional(self.task)

    def subset(self, chosen: slice | Tensor) -> CohortRound:
        """The same round for some of the cohort."""
        lanes = self.lanes and Lanes(self.lanes.number[chosen], self.lanes.keys[chosen])
        part = None if self.part is None else self.part[chosen]
        states = tree.row(self.states, chosen)
        return replace(self, ids=self.ids[chosen], states=states, part=part, lanes=lanes)


class Engine(Protocol):
    """Runs rounds, and evaluates models on data."""

    @property
    def name(self) -> str:
        """As in ``engine="…"``."""

    @property
    def executed(self) -> str:
        """What trained the last round: not what was asked for, but what really ran."""

    def round(self, cohort: CohortRound) -> tuple[Uplink, Tree]:
        """Train the cohort: what it sends, and its new states."""

    def candidates(
        self, task: Task, local: Local, down: Downlink, states: Tree, clients: int
    ) -> dict[str, Params]:
        """Each client's candidate models, stacked."""

    def evaluate(
        self, metrics: PerExample, models: Params, x: Tensor, y: Tensor, rows: Tensor
    ) -> dict[str, Tensor]:
        """``metrics`` of each stacked model on its rows ([clients, n]) of ``x`` and ``y``."""


@dataclass(frozen=True)
class Several:
    """Engines that share out a cohort. The first makes all candidates.

    It can for all clients: of different architectures, parameters are packed alike.
    """

    engines: tuple[Engine, ...]

    def candidates(
        self, task: Task, local: Local, down: Downlink, states: Tree, clients: int
    ) -> dict[str, Params]:
        """All at once, from the first engine."""
        return self.engines[0].candidates(task, local, down, states, clients)


def convolutional(task: Task) -> bool:
    """Whether its model has convolutions, which on a CPU are computed client by client."""
    return any(isinstance(m, nn.modules.conv._ConvNd) for m in task.module.modules())


PerExample = Callable[[Params, Tensor, Tensor], dict[str, Tensor]]
"""Parameters, inputs and labels to tensors of one row per example: ``task.example_metrics``."""


def padded_rows(split: Split, ids: Tensor) -> tuple[Tensor, Tensor]:
    """All rows of clients ``ids`` as one [clients, longest] tensor, and which of them are real."""
    device = ids.device
    start, n = split.spans(ids, device)
    places = torch.arange(int(n.max()), device=device)
    real = places < n.unsqueeze(-1)
    rows = split.rows.to(device)[torch.where(real, start.unsqueeze(-1) + places, 0)]
    return torch.where(real, rows, 0), real


EVAL_BATCH = 2048
"""Labels that go through a model at once when it is evaluated: bounds memory, changes nothing."""


def examples_at_once(y: Tensor) -> int:
    """Examples with labels like these that go through a model at once when it is evaluated."""
    return max(1, EVAL_BATCH // y[0].numel()) if len(y) else EVAL_BATCH
