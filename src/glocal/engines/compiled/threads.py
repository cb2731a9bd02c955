"""Threads that stay, each with one thread of torch's own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Barrier

import torch


@cache
def workers(number: int) -> ThreadPoolExecutor:
    """So many of them; they wait for work until the process ends."""
    pool, everybody = ThreadPoolExecutor(number, "glocal"), Barrier(number + 1)

    def begin() -> None:
        torch.set_num_threads(1)  # of this thread, and of those that begin after it
        torch.set_grad_enabled(False)
        everybody.wait()

    before = torch.get_num_threads()
    begun = [pool.submit(begin) for _ in range(number)]
    everybody.wait()
    for one in begun:
        one.result()
    torch.set_num_threads(before)
    return pool
