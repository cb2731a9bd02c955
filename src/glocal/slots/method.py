"""A method: what a client does, and how the server weighs, combines, protects and applies it.

Eleven slots, each replaceable, and a plan where one method follows another. Combinations that make
no sense are refused (:mod:`glocal.slots.combinations`).
"""

from __future__ import annotations

import dataclasses
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
from glocal.slots.combinations import objections
from glocal.slots.compression import Compression, MessageSize, compress_updates, whole
from glocal.slots.example_privacy import ExamplePrivacy, private_steps, releases
from glocal.slots.pretraining import Pretraining, by_itself
from glocal.slots.privacy import Privacy
from glocal.slots.server_half import Memory, ServerHalf, aggregate
from glocal.slots.shared_auxiliary import shared_parameters, with_shared_auxiliary
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
    example_privacy: ExamplePrivacy | None = None
    shared: Selector = field(default_factory=everything)
    compression: Compression | None = None
    auxiliary: Auxiliary | None = None
    pretraining: Pretraining | None = None
    server: ServerHalf | None = None
    """A server's half of its own, in place of weighting, combine, server_opt and memory."""

    def __post_init__(self) -> None:
        for objection in objections(self):
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

    @property
    def private(self) -> bool:
        """Whether clients, or their examples, are protected by what is accounted for."""
        return self.privacy is not None or self.example_privacy is not None

    def releases(self, task: Task, fed: Federation, setting: Setting) -> list[int]:
        """How many gradients of a mini-batch a step of each phase takes, where they are private."""
        assert self.example_privacy is not None
        begun = self.begin(task, task.params, setting)
        down = self.broadcast(begun, 0, setting)
        return releases(self.example_privacy, self.local, task, fed, down)

    def shared_names(self, task: Task) -> frozenset[str]:
        """Which of the task's parameters are shared."""
        return task.picked(self.shared.pick)

    def client_half(self, task: Task, schema: Schema | None = None) -> Local:
        """The ``Local`` an engine runs: with the private layers in the client's state.

        ``schema`` says what an example looks like, which an auxiliary has to know.
        """
        local, names = self.local, self.shared_names(task)
        if self.example_privacy is not None:
            local = private_steps(local, self.example_privacy)
        if self.privacy is not None:
            local = self.server_half.private_client(local)
        if len(names) < len(task.names) and not local.keeps_whole_model:
            local = keep_private(local, names)
        if self.auxiliary is not None:
            known = needs_schema(schema, self.auxiliary.name)
            wrap = with_shared_auxiliary if self.auxiliary.shared else with_auxiliary
            local = wrap(local, self.auxiliary, task, known, set(task.names) - names)
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

    def sent(self, task: Task, schema: Schema | None = None) -> Params:
        """Tensors of an update's names and shapes."""
        shared, private = split(task.params, self.shared_names(task))
        return shared | shared_parameters(self.auxiliary, task, schema, set(private))

    def message(self, task: Task, schema: Schema | None = None) -> MessageSize:
        """What one client's update takes when it is sent."""
        size = whole if self.compression is None else self.compression.size
        return size(self.sent(task, schema))

    def begin(
        self, task: Task, params: Params, setting: Setting, key: Tensor | None = None
    ) -> Tree:
        """The server's state before the first round of a stage; ``key`` is for what it draws."""
        shared, private = split(params, self.shared_names(task))
        if key is None:
            key = rng.key(0, next(iter(params.values())).device)
        beside = shared_parameters(self.auxiliary, task, setting.schema, set(private), key)
        return {**self.server_half.init(shared | beside, setting, key), "start": private}

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
        down = self.broadcast(begun, 0, setting)
        if self.example_privacy is not None:
            self.example_privacy.check(self.local, task, fed, down)
        if not self.private or not self.server_half.sends_update:
            return
        local = self.client_half(task, Schema.of(fed))
        protection = self.privacy or self.example_privacy
        key = rng.key(0, next(iter(task.params.values())).device)
        client = local.init(task, task.params, key)
        _, _, extra = local.finish(task, down, local.start(task, down, client))
        if tree.leaves(extra):
            assert protection is not None
            raise GlocalError(
                f"{protection.name} protects the update alone, and this method's clients send "
                f"more than that ({', '.join(extra)}): use another base, such as fedavg or ditto."
            )

    def replace(self, **slots: Any) -> Method:
        """The same method with other components."""
        return dataclasses.replace(self, **slots)


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
        private = [(stage.method.privacy, stage.method.example_privacy) for stage in self.stages]
        if any(p != private[0] for p in private):
            raise GlocalError(
                "what one stage sends another cannot protect any more: give all stages the same "
                "privacy, or none."
            )
        protection = next((p for p in private[0] if p is not None), None)
        if protection is not None and any(stage.goal is not None for stage in self.stages):
            raise GlocalError(
                f"a goal looks at the clients' validation data, which {protection.name} does not "
                "protect: give the stage a number of rounds instead."
            )


def as_plan(method: Method | Plan) -> Plan:
    """A lone method is a plan of one stage."""
    if not isinstance(method, Method | Plan):
        raise GlocalError(
            f"{shown(method)} is no method: give a spec such as 'fedavg', a Method or a Plan."
        )
    return method if isinstance(method, Plan) else Plan((Stage(method),))
