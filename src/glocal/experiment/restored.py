"""A training as it stood after its last round, from what was kept of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from glocal.core import tree
from glocal.core.types import Params, Tree
from glocal.evaluation.communication import Traffic
from glocal.experiment.config import Config
from glocal.experiment.repeat import Repeat, Trained
from glocal.experiment.runner import LocalOnly, Runner
from glocal.experiment.setup import Setup
from glocal.slots.method import Plan
from glocal.training.client_state.store import ClientStore
from glocal.training.loop import Progress, Training


def restored(runner: Runner, config: Config, setup: Setup, repeat: Repeat) -> Repeat:
    """A repeat that came without its training, with it again, to be evaluated further."""
    if isinstance(runner, LocalOnly):
        return repeat
    training = runner.check(config, setup)
    states = dict(repeat.states)
    ids = states.pop("ids")
    stages = [line.get("stage") for line in repeat.history]
    progress = progress_of(training, repeat.model, ids, states, len(stages), stages)
    progress = replace(progress, traffic=repeat.traffic, history=repeat.history)
    return replace(repeat, trained=Trained(training, progress))


def progress_of(
    training: Training,
    model: Params,
    ids: Tensor,
    states: Tree,
    rounds: int,
    stages: Sequence[str | None],
) -> Progress:
    """Where a training stood, from the server's model, the clients' states and its rounds' stages.

    What the server kept for itself (an optimiser's state, a weighting's, the count of its privacy)
    is not restored: this can be evaluated, adapted and trained anew, but not resumed.
    """
    task, device = training.task, training.fed.x.device
    stage, began = _stage(training.plan, stages)
    placed: Params = tree.to({k: model[k] for k in task.names}, device)
    method = training.plan.stages[stage].method
    begun = method.begin(task, placed, training.setting)
    clients = ClientStore(len(training.fed), device)
    progress = Progress(begun, clients, Traffic(), stage, began, rounds)
    progress.clients = training.store(progress).filled(ids, states)
    return progress


def _stage(plan: Plan, stages: Sequence[str | None]) -> tuple[int, int]:
    """The stage of the last round, and the rounds before it: a goal may not have been reached."""
    names = [stage.name for stage in plan.stages]
    if len(names) == 1 or not stages:
        return 0, 0
    return names.index(str(stages[-1])), sum(name != stages[-1] for name in stages)
