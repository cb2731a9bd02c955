"""Several devices of one machine: a thread and an engine for each, who share out a cohort.

What does not change (task and data) is copied to each device once; in a round, what the server
sent and the states of its clients. Everything else is on the first device.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.errors import GlocalError, shown
from glocal.core.types import Params, Tree, Uplink
from glocal.engines.base import CohortRound, Lanes, PerExample, Several
from glocal.engines.shards import joined, parts_of
from glocal.nn.precision import arithmetic
from glocal.nn.task import Task


def named(text: str) -> tuple[torch.device, ...]:
    """The devices of a setting: ``cpu``, ``cuda``, or several as in ``cuda:0,cuda:1``."""
    return tuple(_device(name.strip()) for name in text.split(","))


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise GlocalError(f"unknown device {shown(name)}: use 'cpu' or 'cuda'.") from error
    if device.type not in ("cpu", "cuda"):
        raise GlocalError(f"device {name!r} is not supported: use 'cpu' or 'cuda'.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise GlocalError("there is no CUDA device here: use device='cpu'.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise GlocalError(f"there is no device {name} here: the last is cuda:{count - 1}.")
    return device


@dataclass(frozen=True)
class Devices(Several):
    """An engine for each of several devices."""

    devices: tuple[torch.device, ...]
    _copies: dict[int, list[Any]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def name(self) -> str:
        """That of the engines."""
        return self.engines[0].name

    @property
    def executed(self) -> str:
        """What trained on the first device."""
        return self.engines[0].executed

    def round(self, cohort: CohortRound) -> tuple[Uplink, Tree]:
        """Each device's clients at the same time."""
        clients, several = len(cohort.ids), len(self.devices)
        works = parts_of(cohort, -(-clients // several))
        with arithmetic(cohort.task.precision), ThreadPoolExecutor(len(works)) as threads:
            return joined(cohort, list(threads.map(self._part, range(len(works)), works)))

    def _part(self, place: int, work: CohortRound) -> tuple[Uplink, Tree]:
        device, home = self.devices[place], work.ids.device
        task, fed = self._copied(place, work)
        lanes = work.lanes and Lanes(work.lanes.number.to(device), work.lanes.keys.to(device))
        moved = replace(
            work,
            task=task,
            fed=fed,
            down=tree.to(work.down, device),
            ids=work.ids.to(device),
            states=tree.to(work.states, device),
            key=work.key.to(device),
            part=None if work.part is None else work.part.to(device),
            lanes=lanes,
        )
        sent, states = self.engines[place].round(moved)
        back = replace(
            sent,
            ids=work.ids,
            n=sent.n.to(home),
            update=tree.to(sent.update, home),
            loss=None if sent.loss is None else sent.loss.to(home),
            extra=tree.to(sent.extra, home),
        )
        return back, tree.to(states, home)

    def _copied(self, place: int, work: CohortRound) -> tuple[Task, Any]:
        """The task and the data on a device; no two threads may share a task."""
        for known, copied in self._copies.setdefault(place, []):
            if known[0] is work.task and known[1] is work.fed:
                return copied  # type: ignore[no-any-return]
        device = self.devices[place]
        copies = work.task.to(device), work.fed.to(device)
        self._copies[place].append(((work.task, work.fed), copies))
        return copies

    def evaluate(
        self, metrics: PerExample, models: Params, x: Tensor, y: Tensor, rows: Tensor
    ) -> dict[str, Tensor]:
        """On the first device."""
        return self.engines[0].evaluate(metrics, models, x, y, rows)
