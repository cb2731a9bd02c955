"""The learning rate falls where validation loss stays: :func:`glocal.nn.optim.plateau` in a run.

Its state is the run's history. The mean over clients of the validation loss is recorded by round,
in a checkpoint as in memory, and the factor is a function of those of the stage so far: so a run
that is resumed sends the same rate, and one that is trained again on validation data, too, with the
losses that were recorded before, lowers it after the same rounds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from glocal.core.errors import GlocalError
from glocal.nn.optim import Plateau
from glocal.slots.method import Method, Plan

if TYPE_CHECKING:
    from glocal.training.run_state import Progress


def factor(method: Method, progress: Progress) -> float:
    """The factor on the learning rate in the round that comes next, beside the schedule's."""
    schedule = method.local.schedule
    if not isinstance(schedule, Plateau):
        return 1.0
    lines = progress.history[progress.stage_began : progress.round]
    # A loss that is not finite has not improved.
    losses = (line["val_loss"] for line in lines if "val_loss" in line)
    return schedule.factor_after(x if math.isfinite(x) else math.inf for x in losses)


def is_used(plan: Plan) -> bool:
    """Whether a stage has such a schedule."""
    return any(isinstance(stage.method.local.schedule, Plateau) for stage in plan.stages)


def check(plan: Plan, validate_every: int | None) -> None:
    """Refuse a plateau where nothing is evaluated on the way, or where dp would not count it."""
    if not is_used(plan):
        return
    if validate_every == 0:
        raise GlocalError(
            "schedule=plateau needs evaluations on validation data, and validate_every=0 has none "
            "on the way: give the rounds from one to the next."
        )
    if any(stage.method.private for stage in plan.stages):
        raise GlocalError(
            "schedule=plateau follows the clients' validation losses, which dp does not protect: "
            "use step, inverse or cosine."
        )
