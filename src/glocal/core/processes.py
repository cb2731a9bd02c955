"""Processes that work for this one: how many there may be, how they begin and how they end."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from importlib import import_module
from multiprocessing.connection import wait as wait_for
from typing import Any

from glocal.core.errors import GlocalError


def cores() -> int:
    """Those this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def without_script(sent: bytes = b"") -> Iterator[None]:
    """Workers start without the caller's script, unless they are sent something that is in it."""
    main = sys.modules["__main__"].__dict__
    file = None if b"__main__" in sent else main.pop("__file__", None)
    try:
        yield
    finally:
        if file is not None:
            main["__file__"] = file


@contextmanager
def lost_workers_explained() -> Iterator[None]:
    """A worker that is killed leaves its pool broken: say what may have happened."""
    try:
        yield
    except BrokenProcessPool as error:
        raise GlocalError(
            "a worker process was ended from outside, perhaps for want of memory: use one "
            "process (--jobs 1)."
        ) from error


def call(module: str, function: str, *arguments: Any) -> None:
    """Call a function of a module that is imported only then.

    A pool whose workers begin by this has all of them started at once: a worker that is sent a
    function reads what comes behind it, and lets the next one start, when its module is there.
    """
    getattr(import_module(module), function)(*arguments)


def begin_worker() -> None:
    """In a new worker: the parent answers signals to stop, and no worker outlives it.

    When it has nothing left to do it ends at once: to take torch apart takes a second or two.
    """
    atexit.register(os._exit, 0)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that was killed cannot end its workers: they end themselves."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        os._exit(1)
