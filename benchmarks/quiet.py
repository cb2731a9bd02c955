"""Timing on a machine where other programs work as well: they are stopped meanwhile.

Programs that share a machine enter their process group in a folder, under its number. Who times
something stops all the others first, waits until the card has done what they launched, and lets
them go on afterwards. A program that knows nothing of this is entered by a shell::

    setsid sh -c 'touch folder/$$; exec python …' &
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from glocal.core import locks

SETTLES = 0.2
"""Seconds until what was launched is done, and the processor's caches are one's own."""

TURN = 3_600.0
"""Seconds after which nobody waits any longer for the others to have timed."""


def enter(folder: Path, group: int) -> None:
    """A process group is one of those that stop for others."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / str(group)).touch()


@contextmanager
def quiet(folder: Path | None) -> Iterator[None]:
    """All other process groups of the folder stand still; None: there are none."""
    if folder is None:
        yield
        return
    with locks.hold(folder, wait=TURN):
        others = {int(path.name) for path in folder.iterdir() if path.name.isdecimal()}
        others -= {os.getpgrp()}
        try:
            _send(others, signal.SIGSTOP)
            time.sleep(SETTLES)
            yield
        finally:
            _send(others, signal.SIGCONT)


def _send(groups: set[int], sent: signal.Signals) -> None:
    for group in groups:
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(group, sent)
