"""What is known of a training before its rounds: how much is sent, and how much work it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glocal.engines.base import Workload
from glocal.engines.batching import PlanSize
from glocal.nn.architectures import Architectures, sent_by
from glocal.slots.compression import MessageSize

if TYPE_CHECKING:
    from glocal.training.loop import Training


def sizes(training: Training) -> list[tuple[MessageSize, int]]:
    """What a client's update takes in each stage when sent, and the private parameters."""
    methods, task = [stage.method for stage in training.plan.stages], training.task
    private = [sent_by(task, 1, set(task.names) - m.shared_names(task)) for m in methods]
    if isinstance(task, Architectures):  # a client builds its private layers itself
        private = [0 for _ in methods]
    schema = training.setting.schema
    return [(m.message(task, schema), n) for m, n in zip(methods, private, strict=True)]


def workload(training: Training) -> Workload:
    """What an engine may prepare for."""
    n, setting = training.fed.train.counts(), training.setting
    steps = [
        sum(PlanSize.of(n, p.epochs, p.steps, half.batch_size).steps for p in half.phases)
        for half in training.halves
    ]
    cohort = max(1, round(setting.taking_part * len(training.fed)))
    varies = setting.sampling != "fixed" or setting.answering != 1
    turns = tuple(cohort * trainings for trainings in training.turns)
    rounds = training.affordable if turns else training.last  # as many, whatever is chosen
    return Workload(rounds * max(steps), cohort, varies=varies, turns=turns)
