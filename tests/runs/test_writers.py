"""One writer a folder, and disks that are full."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import Command
from glocal.core import locks
from glocal.runs import folder as folders

ALONE = "local(lr=0.1,max_epochs=3)"


SMALL = (
    f"--clients 8 --partition iid --model mlp(8) --rounds 4 --baseline {ALONE} --jobs 1 "
    "--checkpoint-every 1"
).split()


FILES = (
    *("result.json", "metrics.jsonl", "final.safetensors", "clients.safetensors", "models.json"),
    "SHA256SUMS",
)


def same(a: Path, b: Path, files: Sequence[str] = FILES) -> bool:
    return all((a / f).read_bytes() == (b / f).read_bytes() for f in files)


@pytest.mark.parametrize("when", ["before the first holds the lock", "while the first trains"])
def test_of_two_runs_started_into_one_folder_one_is_refused(
    command: Command, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The second begins at the very moment that matters, whatever else the machine does."""
    others: list[tuple[int, str, str]] = []
    waiting = [None]
    hold, line = locks.hold, folders.Folder.line

    def another_run() -> None:
        if waiting:
            waiting.clear()
            others.append(command("run", "fedavg", *SMALL, "--out", "a"))

    def held_late(folder: Path, wait: float = 0.2) -> Any:
        if when == "before the first holds the lock":
            another_run()
        return hold(folder, wait)

    def written(self: folders.Folder, record: dict[str, Any]) -> None:
        line(self, record)
        if when == "while the first trains":
            another_run()

    monkeypatch.setattr(locks, "hold", held_late)
    monkeypatch.setattr(folders.Folder, "line", written)
    first = command("run", "fedavg", *SMALL, "--out", "a")
    (second,) = others
    codes = (2, 0) if when == "before the first holds the lock" else (0, 2)
    assert (first[0], second[0]) == codes, (first, second)
    refused = first if codes[0] == 2 else second
    assert refused[2].count("\n") == 1
    assert Path("a/result.json").exists()


def _can_mount() -> bool:
    words = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs none /mnt"]
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not _can_mount(), reason="needs a name space in which it may mount")
def test_a_full_disk_ends_a_run_in_a_line_and_the_last_checkpoint_is_good(
    command: Command, tmp_path: Path
) -> None:
    np.savez("few.npz", x=np.random.default_rng(0).normal(size=(200, 64)), y=np.arange(200) % 10)
    small = [*SMALL, "--data", "few.npz", "--engine", "sequential"]
    small += ["--partition", "dirichlet(0.3)"]
    assert command("run", "superfed-mm", *small, "--out", "whole")[0] == 0
    code = """
import os, sys
from pathlib import Path
from glocal.cli import app

def command(*words):
    sys.argv = ["glocal", *words]
    try:
        app.main()
    except SystemExit as ended:
        return ended.code

ended = command("run", "superfed-mm", *sys.argv[1:], "--out", "disk/a")
kept = len(list(Path("disk/a/checkpoints/repeat-1").glob("*.safetensors")))
os.system("mount -o remount,size=20m disk")
print(ended, kept, command("resume", "disk/a"), file=open("seen", "w"))
"""
    (tmp_path / "both.py").write_text(code)
    words = shlex.join([sys.executable, "both.py", *small])
    script = f"mkdir disk && mount -t tmpfs -o size=150k none disk && {words} && cp -r disk/a a"
    space = ["unshare", "-rm", "sh", "-c", script]
    done = subprocess.run(space, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ended, kept, resumed = (tmp_path / "seen").read_text().split()
    assert (ended, resumed) == ("2", "0")
    assert done.stderr.count("\n") == 1
    assert "No space left on device" in done.stderr
    assert "glocal resume disk/a" in done.stderr
    assert int(kept) >= 1
    assert same(tmp_path / "whole", tmp_path / "a")
