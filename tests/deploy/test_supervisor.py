"""Processes that are started again when they end, and end with the one that started them."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from deploy.processes import waited_for
from glocal.deploy.supervisor import Child, kept

ENDS = "print('done', flush=True)"
STAYS = (
    "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); "
    "time.sleep(600)"
)


def child(program: str, tmp_path: Path) -> Child:
    return Child(lambda: [sys.executable, "-c", program], os.environ, tmp_path / "log", pause=0.0)


def test_what_ends_is_started_again_and_its_code_is_told(tmp_path: Path) -> None:
    one = child(f"{ENDS}; raise SystemExit(3)", tmp_path)
    with kept(one):
        assert one.keep() is None
        codes: list[int] = []

        def three() -> bool:
            code = one.keep()
            codes.extend([] if code is None else [code])
            return len(codes) == 3

        waited_for(three, 60)
    assert codes == [3, 3, 3]
    assert (tmp_path / "log").read_text().count("\ndone") >= 3
    assert one.starts >= 3


def test_what_was_said_is_that_of_the_last_start(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("of another time\n")
    one = child(ENDS, tmp_path)
    with kept(one):
        one.keep()
        waited_for(lambda: not one.running, 60)
        assert one.said().startswith("$ ")
        assert one.said().endswith("\ndone\n")


def test_all_end_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glocal.deploy.supervisor.GRACE", 0.2)
    stubborn = child(STAYS, tmp_path)

    def told_to_end() -> None:
        with kept(stubborn):
            stubborn.keep()
            waited_for(lambda: "\nready" in stubborn.said(), 60)
            os.kill(os.getpid(), 15)
            time.sleep(60)

    with pytest.raises(KeyboardInterrupt):
        told_to_end()
    assert stubborn.process is not None
    assert stubborn.process.returncode == -9
