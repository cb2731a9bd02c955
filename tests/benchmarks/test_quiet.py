"""While one program times, the others that share its machine stand still."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
COUNTING = """
import sys, time
for i in range(10**9):
    print(i, flush=True)
    time.sleep(0.01)
"""


def lines(file: Path) -> int:
    return len(file.read_text().splitlines())


def test_the_others_stand_still_and_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from quiet import enter, quiet

    told, folder = tmp_path / "told", tmp_path / "groups"
    with told.open("w") as out:
        other = subprocess.Popen(
            [sys.executable, "-c", COUNTING], stdout=out, start_new_session=True
        )
    try:
        enter(folder, other.pid)
        enter(folder, os.getpgrp())  # our own, which must not be stopped
        gone = subprocess.Popen([sys.executable, "-c", ""], start_new_session=True)
        gone.wait()
        enter(folder, gone.pid)
        while lines(told) < 3:
            time.sleep(0.01)
        with suppress(KeyError), quiet(folder):
            before = lines(told)
            time.sleep(0.3)
            assert lines(told) == before
            raise KeyError
        while lines(told) == before:  # it goes on, whatever became of what was timed
            time.sleep(0.01)
    finally:
        os.killpg(other.pid, signal.SIGKILL)
        other.wait()


def test_nobody_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from quiet import quiet

    with quiet(None):
        pass
