"""All rounds of trainings side by side, with checkpoints of all of them together.

A checkpoint has all of the trainings as they stood after the same round, so that a run that was
killed at any moment is resumed with the same cohorts side by side, and comes to the same bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from glocal.core.errors import ClientError
from glocal.training import secret_draws
from glocal.training.checkpoint import CheckpointWriter, packed_lanes, reclaim, unpacked_lanes
from glocal.training.run_state import Progress
from glocal.training.side_by_side import LaneGroup


@dataclass
class RoundsEnd:
    """Where a training ended."""

    progress: Progress
    stopped: int | None = None
    """The round that could not be trained: an attack left nothing finite, or its rate did."""
    error: ClientError | None = None
    """Why not."""
    executed: str = ""
    """The engine that really trained it."""
    seconds: float = 0.0
    """Its share of what training took, since that was begun or resumed."""


OnRound = Callable[[int, Progress, list[dict[str, Any]]], None]
"""Called with a training's place, where it stands, and the new lines of its history."""


def run_rounds(
    group: LaneGroup,
    on_round: OnRound = lambda r, progress, lines: None,
    keeper: CheckpointWriter | None = None,
    *,
    may_fail: bool = False,
    begun: Sequence[Progress] | None = None,
) -> list[RoundsEnd]:
    """All rounds that are left of each; or those until an attack left nothing finite to train.

    With ``may_fail`` a training that cannot go on ends there, and the others go on. They go on from
    a checkpoint, or else from where they have ``begun``, or else from the start.
    """
    trainings, began = group.trainings, time.monotonic()
    kept = keeper.last() if keeper else None
    if kept is None and begun is not None:
        ends = [RoundsEnd(progress) for progress in begun]
    elif kept is None:
        ends = [RoundsEnd(training.begin(training.task.params)) for training in trainings]
    else:
        ends = [RoundsEnd(progress) for progress in unpacked_lanes(kept, trainings)]
        for r, end in enumerate(ends):
            on_round(r, end.progress, end.progress.history)

    def left() -> list[Progress | None]:
        return [
            end.progress if end.stopped is None and training.goes_on(end.progress) else None
            for training, end in zip(trainings, ends, strict=True)
        ]

    def number() -> int:
        return max(end.progress.round for end in ends)

    def contents() -> Any:
        return packed_lanes([end.progress for end in ends])

    while any(now := left()):
        failed = group.one_round(now)
        for r, progress in enumerate(now):
            if progress is not None and r not in failed:
                on_round(r, progress, progress.history[-1:])
        for r, error in failed.items():
            if trainings[r].adversary is None and not may_fail:
                if keeper is not None:
                    keeper.write(number(), contents)  # the last that was good
                raise error
            # That the federation ends there is what was to be found out: it is evaluated so.
            ends[r].stopped, ends[r].error = ends[r].progress.round + 1, error
        for end, ongoing in zip(ends, left(), strict=True):
            if ongoing is None:
                secret_draws.forget(end.progress)
        if keeper is not None and keeper.after(number(), contents, last=not any(left())):
            for training, end in zip(trainings, ends, strict=True):
                reclaim(end.progress, training, keeper)
    if keeper is not None and any(secret_draws.needed(training.plan) for training in trainings):
        keeper.series.keep_newest()  # the only one without the secret
    for training, end in zip(trainings, ends, strict=True):
        end.executed = training.engine.executed
        end.seconds = (time.monotonic() - began) / len(ends)
    return ends
