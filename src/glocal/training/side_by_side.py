"""Trainings in lockstep: the rounds of repeats, or of learning rates, trained as one.

Each training draws, reduces and is evaluated by itself; only its cohort is trained together with
those of the others (:mod:`glocal.engines.lanes`). They may end at different rounds, be in different
stages of their plan, and have rounds in which nobody takes part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from glocal.core.errors import ClientError
from glocal.core.types import Tree, Uplink
from glocal.engines import Sequential, Vectorised
from glocal.engines.base import CohortRound
from glocal.engines.lanes import SideBySide
from glocal.nn.task import SeveralTrainingsError, Task
from glocal.training.loop import RoundSteps, Training, finish
from glocal.training.run_state import Progress


def can_be_merged(trainings: Sequence[Training]) -> bool:
    """Whether these differ in nothing but what a lane can have of its own."""
    first, *others = trainings
    if not isinstance(first.engine, Sequential | Vectorised):
        return False  # an engine of the user's, which may not know of lanes
    return all(
        len(other.fed) == len(first.fed)
        and other.fed.x.shape[1:] == first.fed.x.shape[1:]
        and other.fed.x.dtype == first.fed.x.dtype
        and other.plan is first.plan
        and _same_task(other.task, first.task)
        for other in others
    )


def _same_task(a: Task, b: Task) -> bool:
    """Whether two tasks differ in nothing but their trainable parameters."""
    ours, theirs = a.frozen(), b.frozen()
    return (
        type(a.module) is type(b.module)
        and (a.losses, a.precision, a.names) == (b.losses, b.precision, b.names)
        and ours.keys() == theirs.keys()
        and all(torch.equal(ours[name], theirs[name]) for name in ours)
    )


@dataclass
class LaneGroup:
    """Trainings whose cohorts are trained together, round by round."""

    trainings: tuple[Training, ...]
    merged: bool = True
    """Whether they are; else each is trained by itself, to the same result."""

    @classmethod
    def of(cls, trainings: Sequence[Training]) -> LaneGroup:
        """Together where they can be; all on the engine of the first, which then knows them."""
        # One that was tuned has the program of those that it was chosen from.
        single = len(trainings) == 1 and not trainings[0].turns
        if single or not can_be_merged(trainings):
            return cls(tuple(trainings), merged=False)
        engine = trainings[0].engine
        return cls(tuple(replace(training, engine=engine) for training in trainings))

    @cached_property
    def side(self) -> SideBySide:
        """The federations as one."""
        return SideBySide.of([training.fed for training in self.trainings])

    @cached_property
    def task(self) -> Task:
        """The task of all of them: the same object in all rounds, as engines know it."""
        return self.trainings[0].task.for_several()

    def one_round(self, progresses: Sequence[Progress | None]) -> dict[int, ClientError]:
        """A round of each training but those that are given as None.

        What could not be trained is where it was, and its error is returned.
        """
        failed: dict[int, ClientError] = {}
        rounds: dict[int, RoundSteps] = {}
        works: dict[int, CohortRound] = {}
        for r, progress in enumerate(progresses):
            if progress is not None:
                rounds[r] = self.trainings[r].steps(progress)
                try:
                    work = next(rounds[r], None)
                except ClientError as error:  # of one that trained by itself before its first round
                    failed[r] = error
                    continue
                if work is not None:
                    works[r] = work
        stages = [progress.stage if progress else -1 for progress in progresses]
        for stage in sorted({stages[r] for r in works}):
            some = {r: work for r, work in works.items() if stages[r] == stage}
            for r, trained in self._trained(some, stage, failed).items():
                try:
                    finish(rounds[r], trained)
                except ClientError as error:
                    failed[r] = error
        return failed

    def _trained(
        self, works: dict[int, CohortRound], stage: int, failed: dict[int, ClientError]
    ) -> dict[int, tuple[Uplink, Tree]]:
        """What the cohorts of one stage send and keep."""
        if self.merged:
            local = self.trainings[0].halves[stage]
            rounds = [
                replace(works[r], task=self.task, local=local) if r in works else None
                for r in range(len(self.trainings))
            ]
            try:
                results = self.side.rounds(self.trainings[0].engine, rounds)
                return {r: result for r, result in enumerate(results) if result is not None}
            except SeveralTrainingsError:
                self.merged = False  # the method looks at what is another in each
            except ClientError:
                pass  # that of one training is not that of the others: each by itself shows whose
        trained = {}
        for r, work in works.items():
            try:
                trained[r] = self.trainings[r].engine.round(work)
            except ClientError as error:
                failed[r] = error
        return trained
