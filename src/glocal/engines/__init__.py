"""Engines: one client at a time, or all of a cohort as one program; ``auto`` chooses by rule."""

from __future__ import annotations

import torch

from glocal.core.errors import unknown
from glocal.engines.base import CohortRound, Engine, convolutional
from glocal.engines.cluster import Cluster, connected
from glocal.engines.devices import Devices
from glocal.engines.sequential import Sequential
from glocal.engines.vectorised import Vectorised
from glocal.nn.task import Task

__all__ = [
    "Cluster",
    "CohortRound",
    "Devices",
    "Engine",
    "Sequential",
    "Vectorised",
    "choose",
    "resolve",
]

NAMES = ("auto", "sequential", "vectorised", "compiled", "ray")

DENSE_LIMIT = 1_000_000
"""Parameters up to which stacking dense and recurrent layers pays on a CPU: it gains or ties in all
that was measured up to 820 thousand and loses at 2 million (docs/measurements/speed.md has the
numbers)."""


def choose(task: Task, device: torch.device) -> str:
    """The rule behind ``auto``: of the model and the device alone, so a run comes out the same.

    A GPU waits for small kernels, so there everything is vectorised. On a CPU, stacked dense and
    recurrent layers save the cost of many small calls, until the models are large; stacked
    convolutions become grouped ones, which are slower than one client at a time.
    """
    if device.type == "cuda":
        return "vectorised"
    size = sum(p.numel() for p in task.module.parameters())
    return "sequential" if convolutional(task) or size > DENSE_LIMIT else "vectorised"


def resolve(name: str, task: Task, device: torch.device) -> Engine:
    """The engine of that name."""
    if name not in NAMES:
        raise unknown("engine", name, NAMES)
    if name == "ray":
        connected("engine='ray'")  # refused before anyone trains
        return Cluster()
    if name == "auto":
        if choose(task, device) == "vectorised":
            return Vectorised(compiled=None)
        # Compiled, dense layers gain however large they are, and convolutions client by client.
        return Vectorised(None, None, Sequential())
    return Sequential() if name == "sequential" else Vectorised(compiled=name == "compiled")
