"""What a training with privacy draws from a secret key, and not from its public seed.

Whoever can draw the noise again can take it off, and from whoever knows the samples nothing is
hidden by sampling. So the noise of ``dp`` and its cohorts, and all that clients draw with
``dp-sgd`` (its noise and mini-batches), come from a key of :mod:`glocal.core.secret`, drawn from
the operating system when the training begins. It is a part of the training's progress: it is in its
checkpoints, without which it could not be resumed, and nowhere else. When the training ends it is
forgotten, and so are the checkpoints that had it.

``public_noise`` is for simulations that must come out the same again: the key is then that of the
seed, cohorts are drawn as without privacy, and nobody is protected from whoever has the seed.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from glocal.core import secret
from glocal.core.errors import GlocalError
from glocal.engines.gradients import trained_on

if TYPE_CHECKING:
    from glocal.slots.method import Plan
    from glocal.training.loop import Training
    from glocal.training.run_state import Progress


def needed(plan: Plan) -> bool:
    """Whether anything is drawn from a secret."""
    return any(stage.method.private for stage in plan.stages)


def begun(training: Training) -> Tensor | None:
    """The secret of a training that begins; none where there is no privacy."""
    if not needed(training.plan):
        return None
    return secret.of_seed(training.seed) if training.public_noise else secret.fresh()


def noise_key(training: Training, progress: Progress, purpose: int, number: int) -> Tensor | None:
    """The secret key for the noise of a purpose in a round; none where there is no privacy."""
    if not needed(training.plan):
        return None
    if progress.secret is None:
        raise GlocalError(
            "this training's secret key, from which privacy draws its noise, is gone: it is "
            "removed when training ends, and nobody has another; train anew."
        )
    return secret.fold(progress.secret, purpose, number)


def sampling_key(training: Training, progress: Progress, purpose: int, number: int) -> Tensor:
    """The key by which a cohort, or its clients, draw: of the seed, or from the secret."""
    hidden = None if training.public_noise else noise_key(training, progress, purpose, number)
    if hidden is None:
        return training.key(purpose, number)
    return secret.narrow(hidden).to(training.fed.x.device)


def rounds_of_clients(training: Training) -> Tensor | None:
    """[stages, clients] the rounds that each has taken part in, of which examples' privacy goes."""
    stages = training.plan.stages
    if all(stage.method.example_privacy is None for stage in stages):
        return None
    return torch.zeros(len(stages), len(training.fed), dtype=torch.int64)


def examples_spent(training: Training, progress: Progress) -> dict[str, Any] | None:
    """What each client's examples cost, where they are protected."""
    privacy = training.method(progress).example_privacy
    if privacy is None or progress.took_part is None:
        return None
    n = training.fed.train.counts().cpu()
    steps: list[Counter[tuple[int, int]]] = [Counter() for _ in range(len(n))]
    for stage, rounds in zip(training.plan.stages, progress.took_part, strict=True):
        size = stage.method.local.batch_size
        calls = stage.method.releases(training.task, training.fed, training.setting)
        for phase, count in zip(stage.method.local.phases, calls, strict=True):
            of_round = trained_on(phase, n, size)[1]
            for client, done in enumerate((of_round * rounds).tolist()):
                steps[client][count, size] += done
    return privacy.spent(n.tolist(), steps, public=training.public_noise)


def forget(progress: Progress) -> None:
    """The training is over: what was drawn cannot be drawn again."""
    progress.secret = None
