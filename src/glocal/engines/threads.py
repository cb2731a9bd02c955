"""Threads that train clients side by side, each with one thread of torch's own."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Barrier

import torch


def workers(number: int) -> ThreadPoolExecutor:
    """A pool of so many threads, which stay until the process ends."""
    return _pool(number, os.getpid())  # a forked process has none of its parent's threads


@cache
def _pool(number: int, process: int) -> ThreadPoolExecutor:
    pool, all_started = ThreadPoolExecutor(number, "glocal"), Barrier(number + 1)

    def start() -> None:
        torch.set_num_threads(1)  # of this thread, and of those that start after it
        torch.set_grad_enabled(False)
        all_started.wait()

    before = torch.get_num_threads()
    started = [pool.submit(start) for _ in range(number)]
    all_started.wait()
    for thread in started:
        thread.result()
    torch.set_num_threads(before)
    return pool
