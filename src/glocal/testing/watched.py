"""Runs that are watched: what each round was given and what came of it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.core.types import Downlink, Params, Tree, Uplink
from glocal.engines import CohortRound, Engine
from glocal.engines.base import PerExample
from glocal.nn.task import Task
from glocal.slots.client import Local
from glocal.slots.method import Method
from glocal.testing.trees import assert_same, assert_structure, clone, same_bits, structure
from glocal.training.loop import Progress


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

    @property
    def name(self) -> str:
        """The name of the engine that runs."""
        return self.engine.name

    @property
    def executed(self) -> str:
        """What the engine really ran."""
        return self.engine.executed

    def round(self, work: CohortRound) -> tuple[Uplink, Tree]:
        """A round of the engine; refuse inputs that changed and states of another structure."""
        given = round_inputs(work)
        before = clone(given)
        try:
            uplink, states = self.engine.round(work)
        except GlocalError as error:
            raise AssertionError(f"engines agree: {self.name} cannot run it: {error}") from error
        rule = f"inputs unmodified ({self.name})"
        assert_same(rule, "what the round was given", round_inputs(work), before, exactly=True)
        rule = f"structure stable ({self.name})"
        assert_structure(rule, "client state", structure(states), structure(work.states))
        self._names(work.task, uplink.update)
        self.rounds.append(Round(work, uplink, states))
        return uplink, states

    def _names(self, task: Task, update: Params) -> None:
        """The update has the shared parameters, all of them and no others."""
        shared = self.method.shared_names(task)
        rule = f"only the shared is sent ({self.name})"
        want = structure({k: v.unsqueeze(0) for k, v in task.params.items() if k in shared})
        assert_structure(rule, "update", structure(update), want)

    def candidates(
        self, task: Task, local: Local, down: Downlink, states: Tree, clients: int
    ) -> dict[str, Params]:
        """The engine's candidates."""
        return self.engine.candidates(task, local, down, states, clients)

    def evaluate(
        self, look: PerExample, models: Params, x: Tensor, y: Tensor, rows: Tensor
    ) -> dict[str, Tensor]:
        """The engine's evaluation."""
        return self.engine.evaluate(look, models, x, y, rows)


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
            **{k: {"rows": s.rows, "start": s.start} for k, s in splits.items()},
        },
        "ids": work.ids,
        "key": work.key,
    }


def uplink_tree(uplink: Uplink) -> Tree:
    """An uplink as a tree."""
    loss = {} if uplink.loss is None else {"loss": uplink.loss}
    return {
        "ids": uplink.ids,
        "n": uplink.n,
        "update": uplink.update,
        "extra": uplink.extra,
        **loss,
    }
