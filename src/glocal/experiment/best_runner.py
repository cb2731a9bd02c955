"""The runner of the best alone: what scikit-learn fits, and each client's better of that and local.

The two depend on nothing of each other until each client chooses, so processes do them side by
side. Models of the best alone serve the comparison and are not kept.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from glocal.core.interrupts import Stopped
from glocal.core.processes import cores
from glocal.evaluation.evaluate import Outcome
from glocal.experiment.best_alone import SAME, Alone, best_of, fit_all, unavailable
from glocal.experiment.callbacks import Callbacks
from glocal.experiment.config import Config
from glocal.experiment.repeat import Repeat
from glocal.experiment.setup import Setup
from glocal.training.checkpoint import CheckpointPolicy
from glocal.training.loop import Training

TITLE = "best alone"


@dataclass(frozen=True)
class BestAlone:
    """Every client fits what scikit-learn has."""

    name: str = TITLE

    def check(self, setup: Setup) -> Training | None:
        """Nothing is trained together, so nothing can fail to fit."""
        return None

    def run_side_by_side(
        self, several: Sequence[Setup], callbacks: Callbacks, checkpoints: CheckpointPolicy | None
    ) -> list[Repeat]:
        """All repeats by one pool of processes; a worker of another pool does them by itself."""
        config, began = several[0].config, time.monotonic()
        inside = multiprocessing.parent_process() is not None
        title = TITLE if len(several) > 1 else several[0].title(TITLE)

        def tick(done: int, total: int) -> None:
            callbacks.report(title, done, total)
            if checkpoints is not None and checkpoints.stop():
                raise Stopped  # nothing of this is on disk: it is done again

        found = fit_all(
            [setup.fed for setup in several],
            [setup.seed for setup in several],
            tune=config.tune,
            tick=tick,
            metric=config.metric or several[0].metric,
            repeats=config.repeats,
            processes=1 if inside else _processes(config),
        )
        seconds = (time.monotonic() - began) / len(several)
        return [
            Repeat(
                alone.outcome,
                alone.score,
                "scikit-learn",
                cv_score=alone.score,
                cv_loss=alone.loss,
                left_out=dict(alone.left_out),
                seconds=seconds,
            )
            for alone in found
        ]


def fits(setup: Setup) -> bool:
    """Whether clients fit what scikit-learn has."""
    return setup.scored and unavailable(setup.fed) is None


@dataclass(frozen=True)
class AloneRepeats:
    """What clients have alone in every repeat: the same model, and the best where it is wanted."""

    same: list[Repeat]
    """Those of the local baseline; none where nobody is set against one."""
    best: list[Outcome] | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)
    """How many clients had too much data for a family, in all repeats together."""
    scores: tuple[Tensor, ...] = ()
    """[clients] of each repeat: the best alone's score by cross-validation."""
    losses: tuple[Tensor, ...] = ()
    """[clients] of each repeat: and its loss."""

    @classmethod
    def of(cls, setup: Setup, same: list[Repeat], fitted: Sequence[Repeat]) -> AloneRepeats:
        """Each client takes its best of the same model and what it has fitted."""
        if not setup.scored:
            return cls(same)
        left_out: Counter[str] = Counter()
        for repeat in fitted:
            left_out.update(repeat.left_out)
        best = best_of_each(same, fitted)
        scores = tuple(alone.score for alone in best)
        losses = tuple(alone.loss for alone in best if alone.loss is not None)
        return cls(same, [alone.outcome for alone in best], left_out, scores, losses)


def best_of_each(same: Sequence[Repeat], others: Sequence[Repeat]) -> list[Alone]:
    """Each client's best alone in every repeat; without ``others``, the same model."""
    if not others:
        return [_of(repeat) for repeat in same]
    pairs = zip(same, others, strict=True)
    return [best_of(_of(mine), _of(theirs, named=True)) for mine, theirs in pairs]


def _of(repeat: Repeat, *, named: bool = False) -> Alone:
    outcome = repeat.outcome
    if not named:
        outcome = replace(outcome, chosen=[SAME] * len(outcome.chosen))
    score, loss = repeat.cv_score, repeat.cv_loss
    if score is None:
        score, loss = repeat.val_score, repeat.val_loss
    cost = None if loss is None else loss.cpu().double()
    return Alone(outcome, score.cpu().double(), repeat.left_out, cost)


def _processes(config: Config) -> int:
    """Those of this machine: scikit-learn's fits are not sent to a cluster one by one."""
    return cores() if isinstance(config.jobs, str) else config.jobs or cores()
