"""The server's half of methods that make synthetic data: no parameter of the model is shared.

FedEvg's examples, and the networks of FedCGAN and FedCVAE, are a state of the server that goes
down to clients and moves by what they send in ``extra``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from glocal.core import rng
from glocal.core.errors import GlocalError
from glocal.core.types import Carry, ClientState, Downlink, Params, Tree, Uplink
from glocal.data.federation import Federation
from glocal.nn.task import Task
from glocal.slots.client import Local
from glocal.slots.privacy import Privacy, private_mean
from glocal.slots.server_half import ServerHalf
from glocal.slots.server_memory import Memory
from glocal.slots.weighting import Setting, Weighting, by_examples, uniform_expected


@dataclass(frozen=True)
class Message:
    """What a client sends under privacy: one vector, which can be clipped and made noisy."""

    of: Callable[[Tree], Params]
    """The named parts of the vector, from what the client would send without privacy."""
    like: Callable[[Tree], Params]
    """Tensors of those parts' shapes, from the server's state: an empty cohort shows none."""
    move: Callable[[Tree, Params, Setting, Tensor], Tree]
    """The state moved by the vectors' mean, which is all of the cohort that it is given."""


@dataclass(frozen=True)
class Synthesis:
    """A state of the server that makes synthetic data."""

    memory: Memory
    sample: Callable[[Tree, Setting, Tensor], tuple[Tensor, Tensor]]
    """Inputs and labels, from the state and a key."""
    fits: Callable[[Federation], None]
    """Refuses, before anyone trains, data that it makes no synthetic data of. The server is told
    nothing: in a federation every client would look at its own."""
    message: Message | None = None
    """None: privacy is refused."""
    privacy: Privacy | None = None
    sends_update: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """That of the method."""
        return self.memory.name

    @property
    def weighting(self) -> Weighting:
        """By examples; under privacy all count alike."""
        return by_examples() if self.privacy is None else uniform_expected()

    def protected_by(self, privacy: Privacy | None) -> ServerHalf:
        """With privacy of the clients' vectors."""
        if privacy is not None and self.message is None:
            raise GlocalError(
                f"{privacy.name} protects the update alone, and {self.name} sends more than that: "
                "use fedavg or fedprox as the base."
            )
        return replace(self, privacy=privacy)

    def client(self, local: Local) -> Local:
        """Under privacy the client sends its vector and nothing else."""
        if self.privacy is None or self.message is None:
            return local
        vector = self.message.of

        def finish(task: Task, down: Downlink, carry: Carry) -> tuple[Params, ClientState, Tree]:
            update, client, extra = local.finish(task, down, carry)
            return update, client, vector(extra)

        return local.replace(finish=finish)

    def check(self, fed: Federation, setting: Setting) -> None:
        """Refuse data that is not where synthetic data is made, and what privacy cannot afford."""
        self.fits(fed)
        if self.privacy is not None:
            self.privacy.check(setting)

    def init(self, params: Params, setting: Setting, key: Tensor) -> Tree:
        """The memory, before the first round."""
        return {
            "params": params,
            "opt": {},
            "weighting": self.weighting.init(setting),
            "memory": self.memory.init(params, setting, key),
            "privacy": self.privacy.init(setting) if self.privacy else {},
        }

    def broadcast(self, state: Tree) -> Tree:
        """The memory, as clients need it."""
        return self.memory.broadcast(state["memory"])

    def reduce(
        self, state: Tree, uplink: Uplink, setting: Setting, key: Tensor
    ) -> tuple[Tree, Tensor]:
        """The memory, moved by what the cohort sent."""
        if len(uplink.ids) == 0 and self.privacy is None:
            return state, torch.zeros(0)
        p, weighting = self.weighting.weigh(state["weighting"], uplink)
        memory, memory_key, privacy = state["memory"], rng.fold(key, 2), state["privacy"]
        if self.privacy is None or self.message is None:
            memory = self.memory.update(memory, uplink, setting, memory_key)
        else:
            like = self.message.like(memory)
            mean, privacy = private_mean(
                self.privacy, privacy, uplink, uplink.extra, like, p, setting, key
            )
            memory = self.message.move(memory, mean, setting, memory_key)
        return {**state, "weighting": weighting, "memory": memory, "privacy": privacy}, p

    def draw(self, state: Tree, setting: Setting, key: Tensor) -> tuple[Tensor, Tensor] | None:
        """Labelled examples that stand for everybody's data."""
        return self.sample(state["memory"], setting, key)
