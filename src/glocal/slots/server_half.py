"""The server's half of a method: what it keeps, what it broadcasts, and what it learns of a cohort.

The server's state is a tree: ``params`` (the shared ones, which change), ``start`` (the private
layers as the stage began, for clients that join later), and the state of each slot. It never holds
a client's state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from glocal.core import rng, tree
from glocal.core.types import Params, Tree, Uplink
from glocal.data.federation import Federation
from glocal.nn.optim import Optimizer
from glocal.nn.task import Task
from glocal.slots.aggregation import Combine
from glocal.slots.client import Local
from glocal.slots.privacy import Privacy, private_mean
from glocal.slots.server_memory import Memory
from glocal.slots.weighting import Setting, Weighting


class ServerHalf(Protocol):
    """The contract; :class:`Aggregate` is that of every method which does not bring its own."""

    sends_update: ClassVar[bool]
    """Whether clients send an update of the model's shared parameters."""

    @property
    def name(self) -> str:
        """As in messages to users."""
        ...

    @property
    def weighting(self) -> Weighting:
        """How much each client counts."""
        ...

    def protected_by(self, privacy: Privacy | None) -> ServerHalf:
        """The same, under privacy; raises where that cannot protect what clients send."""
        ...

    def client(self, local: Local) -> Local:
        """The client's half, sending what this half of the server reads."""
        ...

    def check(self, fed: Federation, setting: Setting) -> None:
        """Refuse, before anyone trains, data and rounds that do not fit."""
        ...

    def init(self, params: Params, setting: Setting, key: Tensor) -> Tree:
        """The state before the first round; the key is for what the server draws."""
        ...

    def broadcast(self, state: Tree) -> Tree:
        """What goes into the downlink beside the parameters."""
        ...

    def reduce(
        self, state: Tree, uplink: Uplink, setting: Setting, key: Tensor
    ) -> tuple[Tree, Tensor]:
        """The state after a cohort's messages, and the weight of each client.

        An empty cohort changes nothing, but where privacy adds noise, which must not tell that
        nobody was there.
        """
        ...

    def draw(self, state: Tree, setting: Setting, key: Tensor) -> tuple[Tensor, Tensor] | None:
        """Synthetic data, inputs and labels, of a method that makes some."""
        ...


@dataclass(frozen=True)
class Aggregate:
    """Weigh, protect, combine and apply the clients' updates."""

    weighting: Weighting
    combine: Combine
    server_opt: Optimizer
    privacy: Privacy | None
    memory: Memory
    name: str = "aggregation"
    sends_update: ClassVar[bool] = True

    def protected_by(self, privacy: Privacy | None) -> ServerHalf:
        """Itself: it is made with its privacy."""
        return self

    def client(self, local: Local) -> Local:
        """The client sends its update as it is."""
        return local

    def check(self, fed: Federation, setting: Setting) -> None:
        """Refuse sampling that weighting, aggregator or privacy cannot take."""
        self.weighting.init(setting)
        self.combine.check(setting)
        if self.privacy is not None:
            self.privacy.check(setting)

    def init(self, params: Params, setting: Setting, key: Tensor) -> Tree:
        """The state of every slot."""
        return {
            "params": params,
            "opt": self.server_opt.init(params),
            "weighting": self.weighting.init(setting),
            "memory": self.memory.init(params, setting, key),
            "privacy": self.privacy.init(setting) if self.privacy else {},
        }

    def broadcast(self, state: Tree) -> Tree:
        """What the memory says."""
        return self.memory.broadcast(state["memory"])

    def reduce(
        self, state: Tree, uplink: Uplink, setting: Setting, key: Tensor
    ) -> tuple[Tree, Tensor]:
        """One step of the server's optimiser along the aggregated update."""
        if len(uplink.ids) == 0 and self.privacy is None:
            return state, torch.zeros(0)
        p, weighting = self.weighting.weigh(state["weighting"], uplink)
        if self.privacy is None:
            update, privacy = self.combine.combine(uplink.update, p), state["privacy"]
        else:
            update, privacy = private_mean(
                self.privacy,
                state["privacy"],
                uplink,
                uplink.update,
                state["params"],
                p,
                setting,
                key,
            )
        # The optimiser descends, and an update points the way to go: its negative is the gradient.
        gradient = tree.map(torch.neg, update)
        params, opt = self.server_opt.update(gradient, state["opt"], state["params"], 1.0)
        memory = self.memory.update(state["memory"], uplink, setting, rng.fold(key, 2))
        return {
            "params": params,
            "start": state["start"],
            "opt": opt,
            "weighting": weighting,
            "memory": memory,
            "privacy": privacy,
        }, p

    def draw(self, state: Tree, setting: Setting, key: Tensor) -> tuple[Tensor, Tensor] | None:
        """None: it makes a model."""
        return None


def whole_model(task: Task, state: Tree) -> Params:
    """The model at a client's first round: shared layers as they are, private as they began."""
    both = {**state["start"], **state["params"]}
    return {k: both[k] for k in task.names}
