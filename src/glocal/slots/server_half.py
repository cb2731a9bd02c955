"""The server's half of a method: what it keeps, what it broadcasts, and what it learns of a cohort.

The server's state is a tree: ``params`` (the shared ones, which change), ``start`` (the private
layers as the stage began, for clients that join later), and the state of each slot. It never holds
a client's state.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from glocal.core import rng, tree
from glocal.core.errors import GlocalError
from glocal.core.types import Params, Tree, Uplink
from glocal.data.federation import Federation
from glocal.nn.optim import Optimizer
from glocal.nn.task import Task
from glocal.slots.aggregation import Combine
from glocal.slots.client import Local
from glocal.slots.privacy import Privacy
from glocal.slots.weighting import Setting, Weighting, by_examples


@dataclass(frozen=True)
class Memory:
    """Server state fed by what clients send beside their update (SCAFFOLD's control variate).

    ``init`` at the start, ``broadcast`` into the downlink, ``update`` from the cohort.
    The keys are for what the server draws; every start and every round has its own.
    """

    name: str = "none"
    init: Callable[[Params, Setting, Tensor], Tree] = lambda params, setting, key: {}
    broadcast: Callable[[Tree], Tree] = lambda state: {}
    update: Callable[[Tree, Uplink, Setting, Tensor], Tree] = lambda state, *cohort: state


@dataclass(frozen=True, kw_only=True)
class ServerHalf:
    """The contract: pure functions of the server's state and what a cohort sent.

    A cohort's messages are combined, and the state moves by what they are together. Privacy takes
    the place of ``combine``, and then a mean is all that the state is moved by.
    """

    name: str
    """As in messages to users."""
    memory: Memory
    """What the server keeps and broadcasts beside the parameters."""
    combine: Callable[[Uplink, Tensor], Params]
    """What the messages are together, from the uplink and the clients' weights."""
    apply: Callable[[Tree, Params, Uplink, Setting, Tensor], Tree]
    """What changes in the state, from the messages combined; the key is for what it draws."""
    check: Callable[[Federation, Setting], None]
    """Refuses, before anyone trains, data and rounds that do not fit."""
    weighting: Weighting = field(default_factory=by_examples)
    """How much each client counts."""
    server_opt: Optimizer | None = None
    """What steps along the clients' updates; None: clients send no update of the model."""
    draw: Callable[[Tree, Setting, Tensor], tuple[Tensor, Tensor]] | None = None
    """Synthetic data, inputs and labels, of a method that makes some."""
    privacy: Privacy | None = None
    message: Callable[[Uplink], Params] | None = None
    """The part of an uplink that privacy protects; None: privacy is refused."""
    like: Callable[[Tree], Params] = lambda state: state["params"]
    """Tensors of one message's shapes, from the server's state: an empty cohort shows none."""
    private_client: Callable[[Local], Local] = lambda local: local
    """The client's half under privacy, which sends the message and nothing else."""

    @property
    def sends_update(self) -> bool:
        """Whether clients send an update of the model's shared parameters."""
        return self.server_opt is not None

    def init(self, params: Params, setting: Setting, key: Tensor) -> Tree:
        """The state of every slot before the first round; the key is for what the server draws."""
        return {
            "params": params,
            "opt": self.server_opt.init(params) if self.server_opt else {},
            "weighting": self.weighting.init(setting),
            "memory": self.memory.init(params, setting, key),
            "privacy": self.privacy.init(setting) if self.privacy else {},
        }

    def broadcast(self, state: Tree) -> Tree:
        """What goes into the downlink beside the parameters."""
        return self.memory.broadcast(state["memory"])

    def protected(self, privacy_state: Tree, uplink: Uplink, keys: Tensor) -> Uplink:
        """What clients send, protected by themselves before it leaves them; ``keys`` are theirs."""
        if self.privacy is None or self.message is None:
            return uplink
        message, said = self.privacy.protected(privacy_state, self.message(uplink), keys)
        if self.sends_update:
            return dataclasses.replace(uplink, update=message, said=said)
        return dataclasses.replace(uplink, extra=message, said=said)

    def reduce(
        self, state: Tree, uplink: Uplink, setting: Setting, key: Tensor, secret: Tensor | None
    ) -> tuple[Tree, Tensor]:
        """The state after a cohort's messages, and the weight of each client.

        Privacy draws its noise from the ``secret`` of the round. An empty cohort changes nothing,
        but where privacy adds noise, which must not tell that nobody was there.
        """
        if len(uplink.ids) == 0 and self.privacy is None:
            return state, torch.zeros(0)
        p, weighting = self.weighting.weigh(state["weighting"], uplink)
        privacy = state["privacy"]
        if self.privacy is None:
            combined = self.combine(uplink, p)
        else:
            assert self.message is not None
            if secret is None:
                raise GlocalError(f"{self.privacy.name} has no secret key to draw its noise from.")
            messages, like = self.message(uplink), self.like(state)
            combined, privacy = self.privacy.mean(
                privacy, messages, like, uplink.ids, p, setting, secret, uplink.said
            )
        changes = self.apply(state, combined, uplink, setting, rng.fold(key, 2))
        return {**state, **changes, "weighting": weighting, "privacy": privacy}, p


def aggregate(
    weighting: Weighting,
    combine: Combine,
    server_opt: Optimizer,
    privacy: Privacy | None,
    memory: Memory,
) -> ServerHalf:
    """Clients' updates are weighed, combined and applied by the server's optimiser."""

    def apply(state: Tree, update: Params, uplink: Uplink, setting: Setting, key: Tensor) -> Tree:
        # The optimiser descends, and an update points the way to go: its negative is the gradient.
        gradient = tree.map(torch.neg, update)
        params, opt = server_opt.update(gradient, state["opt"], state["params"], 1.0)
        moved = memory.update(state["memory"], uplink, setting, key)
        return {"params": params, "opt": opt, "memory": moved}

    return ServerHalf(
        name="aggregation",
        weighting=weighting,
        privacy=privacy,
        memory=memory,
        combine=lambda uplink, p: combine.combine(uplink.update, p),
        message=lambda uplink: uplink.update,
        apply=apply,
        check=lambda fed, setting: combine.check(setting),
        server_opt=server_opt,
    )


def whole_model(task: Task, state: Tree) -> Params:
    """The model at a client's first round: shared layers as they are, private as they began."""
    both = {**state["start"], **state["params"]}
    return {k: both[k] for k in task.names}
