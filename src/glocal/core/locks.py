"""One writer for a folder: a lock that the system releases by itself when its process ends.

The lock is on the file ``.lock``, which holds nothing. Whoever only reads asks :func:`held`, and
disturbs nobody.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from glocal.core.errors import GlocalError

NAME = ".lock"


@contextmanager
def hold(folder: Path, wait: float = 0.2) -> Iterator[None]:
    """Be the one who writes to ``folder``; refuse, after ``wait`` seconds, if somebody else is.

    Who only looks holds the lock too, for a moment.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = os.open(folder / NAME, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise GlocalError(
            f"{folder} cannot be written to ({error.strerror}): choose another folder."
        ) from error
    try:
        until = time.monotonic() + wait
        while not _locked(file):
            if time.monotonic() >= until:
                raise GlocalError(
                    f"another process is writing to {folder}: wait until it ends, or choose "
                    "another folder."
                )
            time.sleep(0.05)
        yield
    finally:
        os.close(file)  # and with it the lock goes


def held(folder: Path) -> bool:
    """Whether somebody is writing to ``folder`` now."""
    try:
        file = os.open(folder / NAME, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _locked(file, shared=True)
    finally:
        os.close(file)


def _locked(file: int, shared: bool = False) -> bool:
    """Whether nobody else has the lock, which is then ours.

    Where a system or a file system has no such locks, nobody has it: nobody is ever refused.
    """
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
