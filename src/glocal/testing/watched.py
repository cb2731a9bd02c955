"""Runs that are watched: what each round was given and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.core.types import Tree, Uplink
from glocal.data.schema import Schema
from glocal.engines import CohortRound, Engine
from glocal.slots.method import Method
from glocal.testing.trees import assert_same, assert_structure, clone, same_bits, structure
from glocal.training.run_state import Progress


@dataclass(frozen=True)
class Round:
    """What a round was given, and what came of it."""

    work: CohortRound
    uplink: Uplink
    states: Tree


@dataclass
class Watch:
    """An engine that looks on while another one runs a round."""

    engine: Engine
    method: Method
    rounds: list[Round]

    def __getattr__(self, name: str) -> Any:
        """Everything else is the engine's."""
        return getattr(self.engine, name)

    def round(self, work: CohortRound) -> tuple[Uplink, Tree]:
        """A round of the engine; refuse inputs that changed and states of another structure."""
        given = round_inputs(work)
        before = clone(given)
        try:
            uplink, states = self.engine.round(work)
        except GlocalError as error:
            raise AssertionError(f"engines agree: {self.name} cannot run it: {error}") from error
        rule = f"inputs unmodified ({self.name})"
        assert_same(rule, "what the round was given", round_inputs(work), before)
        rule = f"structure stable ({self.name})"
        assert_structure(rule, "client state", structure(states), structure(work.states))
        sent = self.method.sent(work.task, Schema.of(work.fed))
        want = structure({k: v.unsqueeze(0) for k, v in sent.items()})
        rule = f"only the shared is sent ({self.name})"
        assert_structure(rule, "update", structure(uplink.update), want)
        self.rounds.append(Round(work, uplink, states))
        return uplink, states


@dataclass(frozen=True)
class Trace:
    """A whole run: the state of the server and of the clients after each round, and the rounds."""

    server: list[Tree]
    clients: list[Tree]
    rounds: list[Round]
    end: Progress


def anything_trained(trace: Trace) -> bool:
    """Whether anything was ever sent or kept that was not there before."""
    for done in trace.rounds:
        if any(bool(leaf.any()) for leaf in tree.leaves(done.uplink.update)):
            return True
        if tree.leaves(done.states) and not same_bits(done.states, done.work.states):
            return True
    return False


def round_inputs(work: CohortRound) -> Tree:
    """Every tensor that a round is given, by name."""
    fed = work.fed
    splits = {"train": fed.train, "val": fed.val, "test": fed.test}
    return {
        "downlink": work.down,
        "client state": work.states,
        "model": dict(work.task.module.named_parameters()) | dict(work.task.module.named_buffers()),
        "federation": {
            "x": fed.x,
            "y": fed.y,
            "y_train": fed.y_train,
            **({} if fed.attributes is None else {"attributes": fed.attributes.codes}),
            **{k: {"rows": s.rows, "start": s.start} for k, s in splits.items()},
        },
        "ids": work.ids,
        "key": work.key,
    }


def uplink_tree(uplink: Uplink) -> Tree:
    """An uplink as a tree."""
    return {name: part for name, part in vars(uplink).items() if part is not None}
