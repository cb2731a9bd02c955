"""Methods and repeats on a Ray cluster: a pool of workers like that of processes.

Workers are actors with one core each (and a GPU, where that is what trains). A task whose worker is
lost is done again by another, from its checkpoints if it has some: the folder of a run must be one
that all machines of the cluster see.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

from glocal.core.errors import GlocalError
from glocal.engines.cluster import LOSSES, connected, free_cores, release


def cluster_jobs() -> int:
    """How many tasks the cluster can do at a time, on cores that nobody has taken."""
    release()  # an engine of this process may have them
    return free_cores(connected("--jobs ray"))


class Mailbox:
    """What workers say to whoever waits for them, and whether they should stop."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []
        self.stopping = False

    def put(self, item: tuple[Any, ...]) -> None:
        """One message."""
        self.said.append(item)

    def take(self) -> list[tuple[Any, ...]]:
        """All messages that are new."""
        new, self.said = self.said, []
        return new

    def stop(self) -> None:
        """Workers end after the round that they are in."""
        self.stopping = True

    def stopped(self) -> bool:
        """Whether they should."""
        return self.stopping


class _FromWorker:
    """A mailbox as workers use it: a queue's ``put`` and an event's ``is_set``."""

    def __init__(self, mailbox: Any) -> None:
        self.mailbox = mailbox

    def put(self, item: tuple[Any, ...]) -> None:
        self.mailbox.put.remote(item)

    def is_set(self) -> bool:
        import ray

        return bool(ray.get(self.mailbox.stopped.remote()))


class RayWorker:
    """Does tasks; ``begin`` and ``work`` are functions that the pool was given."""

    def __init__(self, begin: Callable[..., None], sent: bytes, mailbox: Any) -> None:
        said = _FromWorker(mailbox)
        begin(sent, said, said, 1)

    def do(self, work: Callable[..., bytes], *task: Any) -> bytes:
        """One task."""
        return work(*task)


class RayPool:
    """Workers on a cluster, with what :mod:`glocal.experiment.parallel` wants of a pool."""

    def __init__(self, jobs: int, begin: Callable[..., None], sent: bytes, gpu: bool) -> None:
        self.ray = connected("--jobs ray")
        self.mailbox = self.ray.remote(num_cpus=0)(Mailbox).remote()
        self._heard: deque[tuple[Any, ...]] = deque()
        self._worker = self.ray.remote(num_cpus=1, num_gpus=int(gpu))(RayWorker)
        self._given = begin, self.ray.put(sent), self.mailbox
        self._free: SimpleQueue[Any] = SimpleQueue()
        for _ in range(jobs):
            self._free.put(None)  # who starts when there is something to do
        self._threads = ThreadPoolExecutor(jobs)

    def submit(self, work: Callable[..., bytes], *task: Any) -> Future[bytes]:
        """The task, for the next worker that is free."""
        return self._threads.submit(self._done, work, *task)

    def _done(self, work: Callable[..., bytes], *task: Any) -> bytes:
        worker = self._free.get()
        try:
            for _ in range(LOSSES):
                worker = worker or self._worker.remote(*self._given)
                try:
                    done: bytes = self.ray.get(worker.do.remote(work, *task))
                    return done
                except self.ray.exceptions.RayActorError:
                    worker = None
                except self.ray.exceptions.RayTaskError as error:
                    cause: BaseException = error.cause
                    raise cause from None
            raise GlocalError(
                f"{LOSSES} workers of the cluster were lost at the same task, perhaps for want of "
                "memory: use machines that have more."
            )
        finally:
            self._free.put(worker)

    def empty(self) -> bool:
        """Whether there is nothing new to hear."""
        if not self._heard:
            self._heard.extend(self.ray.get(self.mailbox.take.remote()))
        return not self._heard

    def get(self) -> tuple[Any, ...]:
        """The next message."""
        return self._heard.popleft()

    def set(self) -> None:
        """Let workers stop."""
        self.ray.get(self.mailbox.stop.remote())

    def shutdown(self, *, wait: bool, cancel_futures: bool) -> None:
        """Nothing more is to be done."""
        if not wait:  # what still runs would run for nobody
            self.ray.kill(self.mailbox)
        self._threads.shutdown(wait=False, cancel_futures=cancel_futures)
        while not self._free.empty():
            worker = self._free.get()
            if worker is not None:
                self.ray.kill(worker)
