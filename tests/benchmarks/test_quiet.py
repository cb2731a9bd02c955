"""While one program times, the others that share its machine stand still."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
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


def wait_until(true: Callable[[], bool]) -> None:
    for _ in range(3_000):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError


def test_who_was_stopped_by_one_that_was_killed_is_woken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from quiet import enter, wake

    told = tmp_path / "told"
    with told.open("w") as out:
        other = subprocess.Popen(
            [sys.executable, "-c", COUNTING], stdout=out, start_new_session=True
        )
    try:
        (tmp_path / "groups").mkdir()
        (tmp_path / "groups" / "0").touch()  # that would be all of our own
        enter(tmp_path / "groups", other.pid)
        wait_until(lambda: lines(told) >= 3)
        os.killpg(other.pid, signal.SIGSTOP)
        before = lines(told)
        wake(tmp_path / "groups")
        wait_until(lambda: lines(told) > before)
    finally:
        os.killpg(other.pid, signal.SIGKILL)
        other.wait()


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
        wait_until(lambda: lines(told) >= 3)
        with suppress(KeyError), quiet(folder):
            before = lines(told)
            time.sleep(0.3)
            assert lines(told) == before
            raise KeyError
        wait_until(lambda: lines(told) > before)  # it goes on, whatever became of the timing
        assert not (folder / str(gone.pid)).exists()
    finally:
        os.killpg(other.pid, signal.SIGKILL)
        other.wait()


def test_nobody_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from quiet import quiet

    with quiet(None):
        pass
