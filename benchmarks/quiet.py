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
from contextlib import contextmanager
from pathlib import Path

from glocal.core import locks

SETTLES = 1.0
"""Seconds until the card has done what was launched."""

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
        try:
            _send(folder, signal.SIGSTOP)
            time.sleep(SETTLES)
            yield
        finally:
            _send(folder, signal.SIGCONT)


def wake(folder: Path) -> None:
    """Let those go on whom somebody stopped who has been killed since; it waits for others."""
    with locks.hold(folder, wait=TURN):
        _send(folder, signal.SIGCONT)


def _send(folder: Path, sent: signal.Signals) -> None:
    for path in folder.iterdir():
        if not path.name.isdecimal() or (group := int(path.name)) < 2 or group == os.getpgrp():
            continue
        try:
            os.killpg(group, sent)
        except ProcessLookupError:  # it has ended, and its number may be another's some day
            path.unlink(missing_ok=True)
        except PermissionError:  # it is another's already
            continue
