"""The local baseline of one repeat."""

from __future__ import annotations

from typing import Any

from glocal.data.federation import Federation
from glocal.engines.base import Engine
from glocal.experiment.baseline import train_baselines
from glocal.experiment.early_stopping import Selected
from glocal.methods.local import LocalTraining
from glocal.nn.task import Task
from glocal.training.client_state.store import ClientStore


def train_baseline(
    task: Task,
    fed: Federation,
    engine: Engine,
    local: LocalTraining,
    seed: int,
    *tick: Any,
    **how: Any,
) -> Selected[ClientStore]:
    (found,) = train_baselines(task, [fed], engine, local, [seed], *tick, **how)
    return found
