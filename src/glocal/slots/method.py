"""A method: what a client does, and how the server weighs, combines, protects and applies it.

Seven slots, each replaceable, and a plan where one method follows another. Combinations that make
no sense are refused here, with a sentence that says what to do instead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from glocal.core.errors import GlocalError, shown
from glocal.core.types import Carry, ClientState, Downlink, Params, Tree
from glocal.nn.optim import Optimizer, sgd
from glocal.nn.task import Task
from glocal.slots.aggregation import Combine, mean
from glocal.slots.client import Local
from glocal.slots.privacy import Privacy
from glocal.slots.server_memory import Memory, Vector, no_memory
from glocal.slots.sharing import Selector, everything, keep_private
from glocal.slots.weighting import Weighting, by_examples, uniform, uniform_expected


@dataclass(frozen=True)
class Method:
    """Fill ``local``; the other slots have FedAvg's fillers.

    ``weighting`` left at ``None`` means by examples, or uniform where privacy or a combiner that
    ignores weights needs that; a weighting that is named and would be ignored is refused.
    """

    local: Local
    weighting: Weighting | None = None
    combine: Combine = field(default_factory=mean)
    server_opt: Optimizer = field(default_factory=sgd)
    memory: Memory = field(default_factory=no_memory)
    privacy: Privacy | None = None
    shared: Selector = field(default_factory=everything)

    def __post_init__(self) -> None:
        named = self.weighting.name if self.weighting else None
        if self.combine.robust and self.memory.alone:
            raise GlocalError(
                f"{self.memory.name} also moves by a mean of what clients send, which one of them "
                f"can spoil, and {self.combine.name} would protect nothing: leave it out."
            )
        if self.combine.robust and self.memory.name != "none":
            raise GlocalError(
                f"{self.memory.name} also moves by a mean of what clients send, which one of them "
                f"can spoil, so {self.combine.name} would protect nothing: use fedavg or fedprox "
                "as the base."
            )
        if not self.combine.weighted and named:
            raise GlocalError(
                f"{self.combine.name} does not use weights, so {named} would do nothing: "
                "leave one of the two out."
            )
        if self.memory.alone:
            self._refuse_what_would_do_nothing(named)
        elif self.memory.name != "none" and self.shared.name != "everything":
            raise GlocalError(
                f"{self.memory.name} corrects whole models, so shared={self.shared.name} cannot go "
                "with it: leave shared out, or use fedavg."
            )
        if self.privacy is None:
            return
        if named and named != "uniform":
            raise GlocalError(
                f"{self.privacy.name} bounds what one client can change only if all count alike, "
                f"so {named} cannot go with it: leave the weighting out, or the privacy."
            )
        if self.memory.name != "none" and self.vector is None:
            raise GlocalError(
                f"{self.privacy.name} protects the update alone, and {self.memory.name} sends more "
                "than that: use fedavg or fedprox as the base."
            )
        if self.combine.name != "mean":
            raise GlocalError(
                f"{self.privacy.name} adds noise made for a mean, so {self.combine.name} cannot go "
                "with it: leave one of the two out."
            )

    def _refuse_what_would_do_nothing(self, named: str | None) -> None:
        """Where no parameter of the model travels, nobody weighs, combines or applies any."""
        plain, opt = sgd(), self.server_opt
        other = "" if self.shared.name == "nothing" else f"shared={self.shared.name}"
        other = opt.name if (opt.name, opt.lr) != (plain.name, plain.lr) else other
        other = self.combine.name if self.combine.name != "mean" else other
        if named or other:
            raise GlocalError(
                f"{self.memory.name} brings a server half of its own, where {named or other} would "
                "do nothing: leave it out."
            )

    @property
    def weights(self) -> Weighting:
        """The weighting in force."""
        if self.privacy is not None:
            return uniform_expected()
        if self.weighting is not None:
            return self.weighting
        return by_examples() if self.combine.weighted else uniform()

    @property
    def vector(self) -> Vector | None:
        """What privacy protects in place of the update, where a memory is all that travels."""
        return self.memory.vector if self.memory.alone and self.privacy is not None else None

    def shared_names(self, task: Task) -> frozenset[str]:
        """Which of the task's parameters travel."""
        return frozenset(self.shared.pick(task.names))

    def client_half(self, task: Task) -> Local:
        """The ``Local`` an engine runs: with private layers kept at home, where there are any.

        Where privacy protects a memory's vector, a client sends that and nothing else.
        """
        if self.vector is not None:
            return _sending(self.local, self.vector.message)
        names = self.shared_names(task)
        if len(names) == len(task.names) or self.local.keeps_whole_model:
            return self.local
        return keep_private(self.local, names)

    def replace(self, **slots: Any) -> Method:
        """The same method with other fillers."""
        return dataclasses.replace(self, **slots)


def _sending(local: Local, message: Callable[[Tree], Tree]) -> Local:
    """``local``, but beside its update it sends ``message`` of what it would have sent."""

    def finish(task: Task, down: Downlink, carry: Carry) -> tuple[Params, ClientState, Tree]:
        update, client, extra = local.finish(task, down, carry)
        return update, client, message(extra)

    return local.replace(finish=finish)


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

    def __post_init__(self) -> None:
        if not self.stages:
            raise GlocalError("a plan needs one stage or more.")
        for stage in self.stages[:-1]:
            if stage.rounds is None and stage.goal is None:
                raise GlocalError(
                    f"stage {stage.name!r} never ends, and others follow: give it rounds or a goal."
                )
            if stage.method.memory.draw is not None:
                raise GlocalError(
                    f"stage {stage.name!r} makes examples, which would be lost in the one that "
                    f"follows: let {stage.method.memory.name} be the last."
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
