"""The processes of a deployment on this machine: found by their folder, started, killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

Found = TypeVar("Found")

ROLES = {
    "shim": "flwr-clientapp",
    "node": "glocal.deploy.resident",
    "supernode": "flower-supernode",
    "superlink": "glocal.deploy.superlink",
    "serverapp": "flwr-serverapp",
}
"""What a process of each role has in its command line."""


def glocal(*arguments: object, limit: float = 300.0) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    command = [sys.executable, "-m", "glocal", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=limit)


@contextmanager
def running(*arguments: object, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A command that runs meanwhile; it is ended, and with it all that it started."""
    command = [sys.executable, "-m", "glocal", *map(str, arguments)]
    with log.open("ab") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def found(role: str, folder: Path) -> list[int]:
    """The processes of a role that belong to a folder: by their arguments or environment."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                arguments = (entry / "cmdline").read_bytes()
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            words = arguments + b"\0" + environment
            of_folder = re.search(re.escape(os.fsencode(folder)) + rb"[/\0]", words)
            if ROLES[role].encode() in arguments and of_folder:
                pids.append(int(entry.name))
    return pids


def waited_for(what: Callable[[], Found], limit: float = 300.0) -> Found:
    """What is found at last; a test fails after ``limit`` seconds without it."""
    until = time.monotonic() + limit
    while not (result := what()):
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.1)
    return result


def rounds_done(folder: Path) -> int:
    """How many lines the history of a deployment has."""
    file = folder / "history.jsonl"
    return len(file.read_text().splitlines()) if file.exists() else 0
