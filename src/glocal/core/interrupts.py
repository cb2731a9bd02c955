"""Stopping gently: Ctrl-C (or a scheduler's SIGTERM) lets the round that goes on come to its end.

Within :func:`gently` the first signal is only noted, and whoever trains asks :func:`asked` after
each round, writes down where it stands and raises :class:`Stopped`. A second signal, or one outside
such a section, ends at once.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(KeyboardInterrupt):
    """Somebody asked to stop, and all that was done is on disk."""


_asked = 0
"""The signal that asked; 0: none."""


def asked() -> bool:
    """Whether somebody asked to stop."""
    return _asked != 0


def code() -> int:
    """The exit code, by the signal that asked."""
    return 128 + (_asked or signal.SIGINT)


@contextmanager
def gently() -> Iterator[None]:
    """Note the first signal instead of being interrupted by it."""
    global _asked
    _asked = 0
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    before = {s: signal.signal(s, _note) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _note(number: int, frame: FrameType | None) -> None:
    global _asked
    if _asked:
        raise KeyboardInterrupt
    _asked = number
    print(
        "glocal: stopping after this round; once more stops at once.", file=sys.stderr, flush=True
    )
