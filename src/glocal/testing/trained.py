"""What the contract trains: a small federation, and a task and engines for it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from glocal.core import rng
from glocal.data.federation import Federation, federation
from glocal.engines import Engine
from glocal.engines.grouped import Grouped
from glocal.nn import models
from glocal.nn.architectures import Architectures, packed
from glocal.nn.task import Augment, Task

Model = str | nn.Module
"""By name, or a module."""

SIZES = (5, 9, 14, 23, 41, 12)
"""Examples of each client of the federation that a method is tested on where none is given."""


def ragged() -> Federation:
    """Six clients of clearly different sizes; three classes of six features."""
    owner = [k for k, size in enumerate(SIZES) for _ in range(size)]
    key = rng.key(7)
    x = rng.normal(rng.fold(key, 0), (len(owner), 6))
    y = (x @ rng.normal(rng.fold(key, 1), (6, 3))).argmax(1)
    return federation(x, y, clients=owner)


def task_of(
    model: Model | Mapping[str, Model] | None, fed: Federation, augment: Augment | None
) -> Task:
    """The task of a model, or of clients that have one of several in turns."""
    shape, given = tuple(fed.x.shape[1:]), model if isinstance(model, Mapping) else {"": model}
    modules = {
        name: each
        if isinstance(each, nn.Module)
        else models.build(each or "mlp(7)", input_shape=shape, classes=fed.classes)
        for name, each in given.items()
    }
    if len(modules) == 1:
        return Task(next(iter(modules.values())), augment=augment)
    turns = torch.arange(len(fed)) % len(modules)
    return packed(modules, turns, {"augment": augment}, dict.fromkeys(modules))


def engine_of(task: Task, engine: Engine) -> Engine:
    """The engine for a task; where clients have different models, it trains each group."""
    return Grouped((engine,) * len(task.parts)) if isinstance(task, Architectures) else engine
