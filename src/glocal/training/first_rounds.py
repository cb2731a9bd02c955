"""What a client does by itself, before its first round or before it is first evaluated.

Nothing of it is sent. A client that pre-trains does so at its first round. One that did not take
part yet is evaluated as it would be after that, and the result is not kept; what it draws is the
same. A client of a method that solves for a model (pFedMe) does so before it is evaluated, if it
never took part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.types import Downlink, Tree
from glocal.engines.base import CohortRound
from glocal.engines.gradients import gradients
from glocal.slots.client import Local
from glocal.training.run_state import Progress

if TYPE_CHECKING:
    from glocal.training.loop import Training


def states(training: Training, progress: Progress, down: Downlink) -> Callable[[Tensor], Tree]:
    """Clients' states; one that is new makes its own, and may train by itself first."""
    local, before = training.halves[progress.stage], training.before_first[progress.stage]
    gathered = partial(progress.clients.gather, make=training.make(progress, local))
    if before is None:
        return gathered
    key = training.alone_key(progress)
    return partial(solved, training, progress, before, down, gathered, key)


def solved(
    training: Training,
    progress: Progress,
    local: Local,
    down: Tree,
    states: Callable[[Tensor], Tree],
    key: Tensor,
    ids: Tensor,
) -> Tree:
    """Clients' states; one that never took part runs a round of which nothing is sent."""
    gathered = states(ids)
    absent = (~progress.clients.seen[ids.cpu()]).to(ids.device)
    if not bool(absent.any()):
        return gathered
    rows, workload = tree.row(gathered, absent), replace(training.workload, steps=0)
    work = CohortRound(
        training.task, local, training.fed, down, ids[absent], rows, key, workload=workload
    )
    new = training.engine.round(work)[1]
    if bool(absent.all()):
        return new

    def put(state: Tensor, found: Tensor) -> Tensor:
        state[absent] = found  # what was gathered is nobody else's
        return state

    return tree.map(put, gathered, new)


def gradients_of(training: Training, halves: Sequence[Local | None]) -> list[Tensor]:
    """[clients] of each stage: the gradients that a client computes in a round of these."""
    n, task, setting = training.fed.train.counts().cpu(), training.task, training.setting
    of_stages = []
    for stage, half in zip(training.plan.stages, halves, strict=True):
        if half is None:
            of_stages.append(torch.zeros_like(n))
            continue
        begun = stage.method.begin(task, task.params, setting)
        of_stages.append(gradients(half, n, stage.method.broadcast(begun, 0, setting)))
    return of_stages
