"""A method: what a client does, and how the server weighs, combines, protects and applies it.

Ten slots, each replaceable, and a plan where one method follows another. Combinations that make
no sense are refused here, with a sentence that says what to do instead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from glocal.core import rng, tree
from glocal.core.errors import GlocalError, shown
from glocal.core.types import Downlink, Params, Tree
from glocal.core.validation import integer
from glocal.data.federation import Federation
from glocal.data.schema import Schema
from glocal.nn.optim import Optimizer, sgd
from glocal.nn.task import Task
from glocal.slots.aggregation import Combine, mean
from glocal.slots.auxiliary import Auxiliary, needs_schema, with_auxiliary
from glocal.slots.client import Local
from glocal.slots.compression import Compression, MessageSize, compress_updates, whole
from glocal.slots.pretraining import Pretraining, by_itself
from glocal.slots.privacy import Privacy
from glocal.slots.server_half import Memory, ServerHalf, aggregate
from glocal.slots.sharing import Selector, everything, keep_private, split
from glocal.slots.weighting import Setting, Weighting, by_examples, uniform, uniform_expected


@dataclass(frozen=True)
class Method:
    """A client's half and a server's: with ``local`` alone, the other slots are FedAvg's.

    ``weighting`` left at ``None`` means by examples, or uniform where privacy or an aggregator that
    ignores weights needs that; a weighting that is named and would be ignored is refused.
    """

    local: Local
    weighting: Weighting | None = None
    combine: Combine = field(default_factory=mean)
    server_opt: Optimizer = field(default_factory=sgd)
    memory: Memory = field(default_factory=Memory)
    privacy: Privacy | None = None
    shared: Selector = field(default_factory=everything)
    compression: Compression | None = None
    auxiliary: Auxiliary | None = None
    pretraining: Pretraining | None = None
    server: ServerHalf | None = None
    """A server's half of its own, in place of weighting, combine, server_opt and memory."""

    def __post_init__(self) -> None:
        for objection in _objections(self):
            raise GlocalError(objection)

    @cached_property
    def server_half(self) -> ServerHalf:
        """What the server does: the slots together, or what the method brings."""
        weighting = self.weighting or (by_examples() if self.combine.weighted else uniform())
        if self.privacy is not None:
            weighting = uniform_expected()
        if self.server is not None:
            return dataclasses.replace(self.server, weighting=weighting, privacy=self.privacy)
        return aggregate(weighting, self.combine, self.server_opt, self.privacy, self.memory)

    @property
    def weights(self) -> Weighting:
        """The weighting in force."""
        return self.server_half.weighting

    def shared_names(self, task: Task) -> frozenset[str]:
        """Which of the task's parameters are shared."""
        return task.picked(self.shared.pick)

    def client_half(self, task: Task, schema: Schema | None = None) -> Local:
        """The ``Local`` an engine runs: with the private layers in the client's state.

        ``schema`` says what an example looks like, which an auxiliary has to know.
        """
        local, names = self.local, self.shared_names(task)
        if self.privacy is not None:
            local = self.server_half.private_client(local)
        if len(names) < len(task.names) and not local.keeps_whole_model:
            local = keep_private(local, names)
        if self.auxiliary is not None:
            known = needs_schema(schema, self.auxiliary.name)
            local = with_auxiliary(local, self.auxiliary, task, known, set(task.names) - names)
        if self.compression is not None:
            local = compress_updates(local, self.compression, names)
        return local

    def before_first(self, task: Task, schema: Schema | None = None) -> Local | None:
        """What a client runs by itself before its first round, where it does."""
        if self.pretraining is None:
            return None
        meanwhile = self.replace(auxiliary=self.pretraining.auxiliary(self.auxiliary))
        half = meanwhile.client_half(task, schema)
        return by_itself(half, self.shared_names(task), self.pretraining.epochs)

    def message(self, task: Task) -> MessageSize:
        """What one client's update takes when it is sent."""
        size = whole if self.compression is None else self.compression.size
        return size(split(task.params, self.shared_names(task))[0])

    def begin(
        self, task: Task, params: Params, setting: Setting, key: Tensor | None = None
    ) -> Tree:
        """The server's state before the first round of a stage; ``key`` is for what it draws."""
        shared, private = split(params, self.shared_names(task))
        if key is None:
            key = rng.key(0, next(iter(params.values())).device)
        return {**self.server_half.init(shared, setting, key), "start": private}

    def broadcast(self, state: Tree, round: int, setting: Setting) -> Downlink:
        """What the clients of a round receive; scalars are tensors, so nothing is traced twice."""
        first = next(iter([*state["params"].values(), *state["start"].values()]))

        def scalar(value: float) -> Tensor:
            return torch.tensor(value, device=first.device)

        return {
            "params": state["params"],
            "round": scalar(float(round)),
            "rounds": scalar(float(setting.rounds)),
            "lr": scalar(self.local.schedule(round)),
            **self.server_half.broadcast(state),
        }

    def check(self, task: Task, fed: Federation, setting: Setting) -> None:
        """Refuse, before anyone trains, what does not fit the model, the data or the sampling."""
        self.shared_names(task)
        self.weights.init(setting)
        self.server_half.check(fed, setting)
        if self.auxiliary is not None:
            self.client_half(task, Schema.of(fed))
        if self.privacy is not None:
            self.privacy.check(setting)
        begun = self.begin(task, task.params, setting)
        if self.privacy is None or not self.server_half.sends_update:
            return
        local, down = self.client_half(task, Schema.of(fed)), self.broadcast(begun, 0, setting)
        key = rng.key(0, next(iter(task.params.values())).device)
        client = local.init(task, task.params, key)
        _, _, extra = local.finish(task, down, local.start(task, down, client))
        if tree.leaves(extra):
            raise GlocalError(
                f"{self.privacy.name} protects the update alone, and this method's clients send "
                f"more than that ({', '.join(extra)}): use another base, such as fedavg or ditto."
            )

    def replace(self, **slots: Any) -> Method:
        """The same method with other components."""
        return dataclasses.replace(self, **slots)


def _objections(method: Method) -> Iterator[str]:
    """Why the components do not go together, and what to do instead."""
    combine, privacy, memory = method.combine, method.privacy, method.memory.name
    compression = method.compression
    named = method.weighting.name if method.weighting else ""
    more = (
        f"{privacy.name} protects the update alone, and {{}} sends more than that: use fedavg or "
        "fedprox as the base."
        if privacy
        else ""
    )
    if method.server is not None:
        server, plain, opt = method.server, sgd(), method.server_opt
        if combine.robust:
            yield (
                f"{server.name} also moves by a mean of what clients send, which one of them can "
                f"spoil, and {combine.name} would protect nothing: leave it out."
            )
        idle = {
            named: named,
            combine.name: combine.name != "mean",
            opt.name: (opt.name, opt.lr) != (plain.name, plain.lr),
            memory: memory != "none",
            f"shared={method.shared.name}": method.shared.name != "nothing",
        }
        for name in (name for name, given in idle.items() if given):
            yield (
                f"{server.name} brings a server half of its own, where {name} would do nothing: "
                "leave it out."
            )
        if privacy and server.message is None:
            yield more.format(server.name)
        if compression and not server.sends_update:
            yield (
                f"{server.name} sends no update of the model, so {compression.name} would do "
                "nothing: leave it out."
            )
    elif memory != "none":
        if combine.robust:
            yield (
                f"{memory} also moves by a mean of what clients send, which one of them can spoil, "
                f"so {combine.name} would protect nothing: use fedavg or fedprox as the base."
            )
        if method.shared.name != "everything":
            yield (
                f"{memory} corrects whole models, so shared={method.shared.name} cannot go with "
                "it: leave shared out, or use fedavg."
            )
        if privacy:
            yield more.format(memory)
    parts = [part.name for part in (method.auxiliary, method.pretraining) if part is not None]
    for name in parts:
        if method.shared.name == "everything":
            yield (
                f"{name} trains what a client's own layers make of its data, and this method keeps "
                "no layer private: use lg-fedavg, or say which layers are shared, as in "
                "fedavg(shared=last(1))."
            )
        if method.server is not None:
            yield (
                f"the clients of {method.server.name} train in a way of their own, which {name} "
                "cannot join: use lg-fedavg, fedper or fedrep."
            )
    if method.pretraining and not method.auxiliary and method.pretraining.needs_auxiliary:
        yield (
            "pretrain's weight and labels=false are about an auxiliary model, and there is none: "
            "add one, such as autoencoder, or leave them out."
        )
    if method.weighting and method.weighting.own_step and method.server_opt.adaptive:
        step, undoing = method.weighting.own_step, method.server_opt.name
        yield (
            f"{named}({step}=…) says how long the server's step is, and {undoing} divides by the "
            f"size of past ones, which would undo it: leave {step} out, or use sgd or momentum."
        )
    if not combine.weighted and named:
        yield (
            f"{combine.name} does not use weights, so {named} would do nothing: leave one of the "
            "two out."
        )
    if privacy and named and named != "uniform":
        yield (
            f"{privacy.name} bounds what one client can change only if all count alike, so {named} "
            "cannot go with it: leave the weighting out, or the privacy."
        )
    if privacy and compression and privacy.where == "local":
        yield (
            f"{privacy.name}(where=local) adds noise to every number that a client sends, so "
            f"nothing would be saved by {compression.name}: leave it out, or use where=central."
        )
    if compression and compression.feedback and method.local.resends:
        yield (
            "the clients of this method send how their own model differs from the server's, which "
            f"has in it what {compression.name} left out before: write feedback=false."
        )
    if privacy and combine.name != "mean":
        yield (
            f"{privacy.name} adds noise made for a mean, so {combine.name} cannot go with it: "
            "leave one of the two out."
        )


@dataclass(frozen=True)
class Stage:
    """A method for some rounds: a number, until a goal on validation data, or all that are left."""

    method: Method
    rounds: float | None = None
    """An integer, or a share of all rounds below 1."""
    goal: float | None = None
    """Mean validation accuracy over clients at which the stage ends."""
    name: str = "train"

    def __post_init__(self) -> None:
        if self.rounds is not None and not (
            0 < self.rounds < 1 or (self.rounds >= 1 and self.rounds == int(self.rounds))
        ):
            raise GlocalError(
                "a stage lasts an integer number of rounds, or a share of all between 0 and 1, not "
                f"{self.rounds}."
            )
        if self.goal is not None and not 0 < self.goal <= 1:
            raise GlocalError(
                f"a stage's goal is an accuracy above 0 and up to 1, not {self.goal}."
            )

    def length(self, rounds: int) -> int | None:
        """How many of ``rounds`` rounds the stage may take; none: no bound."""
        if self.rounds is None:
            return None
        return int(self.rounds) if self.rounds >= 1 else max(1, round(self.rounds * rounds))


@dataclass(frozen=True)
class Plan:
    """Stages in order. A later stage starts from the parameters the one before ended with.

    Clients make their state for a stage lazily, at their first round in it, so nobody needs to be
    present at the switch.
    """

    stages: tuple[Stage, ...]
    rounds: int | None = None
    """Of all stages together; none: as many as the settings say."""

    def __post_init__(self) -> None:
        if self.rounds is not None:
            integer(self.rounds, "rounds", 1)
        if not self.stages:
            raise GlocalError("a plan needs one stage or more.")
        for stage in self.stages[:-1]:
            if stage.rounds is None and stage.goal is None:
                raise GlocalError(
                    f"stage {stage.name!r} never ends, and others follow: give it rounds or a goal."
                )
            if not stage.method.server_half.sends_update:
                raise GlocalError(
                    f"stage {stage.name!r} makes synthetic data, which would be lost in the one "
                    f"that follows: let {stage.method.server_half.name} be the last."
                )
        private = [stage.method.privacy for stage in self.stages]
        if any(p != private[0] for p in private):
            raise GlocalError(
                "what one stage sends another cannot protect any more: give all stages the same "
                "privacy, or none."
            )
        if private[0] is not None and any(stage.goal is not None for stage in self.stages):
            raise GlocalError(
                f"a goal looks at the clients' validation data, which {private[0].name} does not "
                "protect: give the stage a number of rounds instead."
            )


def as_plan(method: Method | Plan) -> Plan:
    """A lone method is a plan of one stage."""
    if not isinstance(method, Method | Plan):
        raise GlocalError(
            f"{shown(method)} is no method: give a spec such as 'fedavg', a Method or a Plan."
        )
    return method if isinstance(method, Plan) else Plan((Stage(method),))
