"""Processes that are kept running: one that ends is started again, and all end with this one."""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

GRACE = 10.0
"""Seconds to end in when asked to."""


class Child:
    """A process that is started again when it ends, after a pause."""

    def __init__(
        self,
        command: Callable[[], list[str]],
        environment: Mapping[str, str],
        log: Path,
        pause: float = 2.0,
    ) -> None:
        self.command, self.environment, self.log, self.pause = command, environment, log, pause
        self.process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self._not_before = 0.0
        self._told = 0

    @property
    def running(self) -> bool:
        """Whether it is there."""
        return self.process is not None and self.process.poll() is None

    def keep(self) -> int | None:
        """Start it unless it runs or just ended; the exit code of one that ended meanwhile."""
        ended = None
        if self.process is not None and self.process.poll() is not None:
            ended = self.process.returncode
            self.process, self._not_before = None, time.monotonic() + self.pause
        if self.process is None and time.monotonic() >= self._not_before:
            self._start()
        return ended

    def _start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._told = self.log.stat().st_size if self.log.exists() else 0
        command = self.command()
        with self.log.open("ab") as log:
            log.write(f"$ {shlex.join(command)}\n".encode())
            log.flush()
            self.process = subprocess.Popen(
                command,
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
            )
        self.starts += 1

    def said(self) -> str:
        """What the process that was started last has written to its log."""
        with suppress(OSError), self.log.open("rb") as log:
            log.seek(self._told)
            return log.read(1 << 16).decode(errors="replace")
        return ""

    def signal(self, number: int) -> None:
        """Send a signal to the process and to all that it started."""
        if self.process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)


def stop(children: Sequence[Child]) -> None:
    """Ask all to end, and end those that do not."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for child in children:
            child.signal(number)
        until = time.monotonic() + GRACE
        for child in children:
            if child.process is not None:
                with suppress(subprocess.TimeoutExpired):
                    child.process.wait(max(0.0, until - time.monotonic()))


def _end_with_parent() -> None:
    """In a new process on Linux: end when the one that started it does, however that happened."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


@contextmanager
def kept(*children: Child) -> Iterator[None]:
    """End the children on leaving; a signal to end is an exception here, so that it leaves."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        stop(children)


def free_port() -> int:
    """A port of this machine that nobody listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
