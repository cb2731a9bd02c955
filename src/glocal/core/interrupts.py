"""Graceful stops: on Ctrl-C or a scheduler's SIGTERM the current round is finished first.

Within :func:`graceful` the first signal is only recorded. The training loop calls
:func:`stop_requested` after each round, writes a checkpoint and raises :class:`Stopped`. A second
signal, or one outside of such a section, interrupts at once.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from glocal.core.progress import print_note


class Stopped(KeyboardInterrupt):
    """A stop was requested, and everything up to here is on disk."""


_received = 0
"""The signal that was received; 0 if there was none."""


def stop_requested() -> bool:
    """Whether a signal was received."""
    return _received != 0


def exit_code() -> int:
    """The exit code that belongs to the signal."""
    return 128 + (_received or signal.SIGINT)


@contextmanager
def graceful() -> Iterator[None]:
    """Record the first signal instead of being interrupted by it."""
    global _received
    _received = 0
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return
    previous = {s: signal.signal(s, _record) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _record(number: int, frame: FrameType | None) -> None:
    global _received
    if _received:
        raise KeyboardInterrupt
    _received = number
    print_note("stopping after this round; once more stops at once.")
