"""Clients of a cohort on the machines of a Ray cluster, to the bits of the sequential engine.

A worker is an actor with one core. It is sent the task, the client's half and the data once, and in
a round what the server sent and the states of its clients; it keeps nothing from round to round. So
the clients of a worker that was lost are trained again by another, and nobody can tell.

A cohort of small models gains nothing by it: sending takes longer than training. Methods and
repeats on a cluster (``jobs="ray"``) have less to send.
"""

from __future__ import annotations

import itertools
import logging
import os
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from glocal.core.errors import ClientError, GlocalError, shown
from glocal.core.processes import cores
from glocal.core.types import Downlink, Params, Tree, Uplink
from glocal.engines.base import CohortRound, PerExample
from glocal.engines.sequential import Sequential
from glocal.engines.shards import joined, parts_of
from glocal.nn.task import Task
from glocal.slots.client import Local

KEPT = 4
"""Trainings whose task, method and data workers keep, for those that take turns."""

WAITS = 20

LOSSES = 3
"""Workers that may be lost with the same clients before that is taken for their fault."""


def connected(what: str) -> Any:
    """Ray, connected to the cluster at ``RAY_ADDRESS``, or else to one of this machine's cores."""
    try:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray
    except ImportError as error:
        raise GlocalError(
            f"{what} needs Ray, which is not installed: pip install 'glocal[ray]'."
        ) from error
    if not ray.is_initialized():
        address = os.environ.get("RAY_ADDRESS")
        options: dict[str, Any] = {"address": address} if address else {"num_cpus": cores()}
        try:
            _check_reached(address or "")
            ray.init(**options, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, ValueError, RuntimeError) as error:
            raise GlocalError(
                f"there is no Ray cluster at {shown(address)} ({_first_line(error)}): start one "
                "with 'ray start --head', or leave RAY_ADDRESS out to use this machine's cores."
            ) from error
    return ray


def _check_reached(address: str) -> None:
    """Raise where nobody listens at a host and port: Ray itself tries for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


def _first_line(error: Exception) -> str:
    """What went wrong, without Ray's advice in further lines."""
    return (str(error) or type(error).__name__).splitlines()[0].rstrip(".")


def cluster_cores(ray: Any) -> int:
    """Those of all machines of the cluster."""
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def _free(ray: Any) -> int:
    return int(ray.available_resources().get("CPU", 0))


def free_cores(ray: Any) -> int:
    """Those that nobody has taken; where there are none, even after a while, that is an error."""
    for _ in range(WAITS):
        if free := _free(ray):
            return free
        time.sleep(0.5)  # what was given back just now is counted a little later
    raise GlocalError(
        "all cores of the Ray cluster are taken by other programs: wait until they end, or add "
        "machines."
    )


class Worker:
    """A process of the cluster that trains clients, one after another."""

    def __init__(self) -> None:
        import torch

        torch.set_num_threads(1)
        self.kept: dict[int, tuple[Task, Local, Any]] = {}

    def keep(self, number: int, sent: tuple[Task, Local, Any]) -> None:
        """What does not change from round to round; of what was sent before, the last few."""
        self.kept = dict([*self.kept.items(), (number, sent)][-KEPT:])

    def round(self, number: int, work: CohortRound) -> tuple[Uplink, Tree]:
        """The round of some clients."""
        task, local, fed = self.kept[number]
        return Sequential().round(replace(work, task=task, local=local, fed=fed))


@dataclass
class _Team:
    """The workers, and what each of them was sent."""

    ray: Any
    workers: dict[int, Any] = field(default_factory=dict)
    sent: dict[int, tuple[tuple[Task, Local, Any], Any]] = field(default_factory=dict)
    """What does not change, and where the cluster has it: the last few of them."""
    told: dict[int, list[int]] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def grown(self, wanted: int) -> int:
        """How many workers there are for a cohort, after new ones have taken free cores."""
        missing = min(wanted, cluster_cores(self.ray)) - len(self.workers)
        if missing > 0:
            free = _free(self.ray) if self.workers else free_cores(self.ray)
            for place in range(len(self.workers), len(self.workers) + min(missing, free)):
                self._start(place)
        return min(wanted, len(self.workers))

    def _start(self, place: int) -> None:
        self.workers[place] = self.ray.remote(num_cpus=1)(Worker).remote()
        self.told[place] = []

    def worker(self, place: int, number: int) -> Any:
        """The worker of a place, who knows what the number stands for."""
        if place not in self.workers:
            self._start(place)
        if number not in self.told[place]:
            self.workers[place].keep.remote(number, self.sent[number][1])
            self.told[place] = [*self.told[place], number][-KEPT:]
        return self.workers[place]

    def number(self, *parts: Any) -> int:
        """The number of a task, a client's half and a federation, which are sent when new."""
        for n, (known, _) in self.sent.items():
            if all(a is b for a, b in zip(known, parts, strict=True)):
                return n
        new = next(self.numbers)
        self.sent = dict([*self.sent.items(), (new, (parts, self.ray.put(parts)))][-KEPT:])
        return new

    def rounds(self, number: int, works: Sequence[CohortRound]) -> list[tuple[Uplink, Tree]]:
        """What each part of a cohort came to; of a lost worker, by another one."""
        results: dict[int, tuple[Uplink, Tree]] = {}
        lost = [0] * len(works)
        left = {
            place: self.worker(place, number).round.remote(number, work)
            for place, work in enumerate(works)
        }
        while left:
            for place, answer in list(left.items()):
                try:
                    results[place] = self.ray.get(answer)
                    del left[place]
                except self.ray.exceptions.RayActorError as error:
                    lost[place] += 1
                    if lost[place] == LOSSES:
                        raise ClientError(
                            f"{LOSSES} workers of the cluster were lost with the same clients, "
                            "perhaps for want of memory: use machines that have more."
                        ) from error
                    del self.workers[place]
                    again = self.worker(place, number)
                    left[place] = again.round.remote(number, works[place])
                except self.ray.exceptions.RayTaskError as error:
                    if isinstance(error.cause, GlocalError):
                        raise error.cause from None
                    raise
        return [results[place] for place in range(len(works))]


@dataclass(frozen=True)
class Cluster:
    """The clients of a cohort, divided among workers of a Ray cluster."""

    workers: int | None = None
    """How many at most; one for each free core of the cluster by default."""
    name = executed = "ray"

    def round(self, cohort: CohortRound) -> tuple[Uplink, Tree]:
        """Each worker's clients in turn."""
        if cohort.ids.device.type != "cpu":
            raise GlocalError("engine='ray' trains on processors: use device='cpu' with it.")
        team, clients = _team(), len(cohort.ids)
        workers = team.grown(min(self.workers or clients, clients))
        number = team.number(cohort.task, cohort.local, cohort.fed)
        works = parts_of(cohort, -(-clients // workers))
        nothing: Any = None
        bare = [replace(work, task=nothing, local=nothing, fed=nothing) for work in works]
        return joined(cohort, team.rounds(number, bare))

    def candidates(
        self, task: Task, local: Local, down: Downlink, states: Tree, clients: int
    ) -> dict[str, Params]:
        """Here, client by client."""
        return Sequential().candidates(task, local, down, states, clients)

    def evaluate(
        self, metrics: PerExample, models: Params, x: Tensor, y: Tensor, rows: Tensor
    ) -> dict[str, Tensor]:
        """Here, client by client."""
        return Sequential().evaluate(metrics, models, x, y, rows)

    def close(self) -> None:
        """Give the cores back; workers start again when they are needed."""
        release()

    def __reduce__(self) -> Any:
        """In another process it is one of its own."""
        return Cluster, (self.workers,)


_TEAMS: dict[str, _Team] = {}
"""The workers of this process, by Ray's job: engines share them, as a worker has a core."""


def _team() -> _Team:
    ray = connected("engine='ray'")
    job = ray.get_runtime_context().get_job_id()
    if job not in _TEAMS:
        _TEAMS.clear()  # of clusters that this process has left
        _TEAMS[job] = _Team(ray)
    return _TEAMS[job]


def release() -> None:
    """End the workers of this process's engines, if there are any."""
    for team in _TEAMS.values():
        if team.ray.is_initialized():
            for worker in team.workers.values():
                team.ray.kill(worker)
    _TEAMS.clear()
