"""Runs killed with -9, among it inside the writing of a checkpoint, come out as if undisturbed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "kills.py"


def test_twenty_kills_change_nothing(tmp_path: Path) -> None:
    draw, few = np.random.default_rng(0), tmp_path / "few.npz"
    np.savez(few, x=draw.normal(size=(200, 64)).astype("float32"), y=np.arange(200) % 10)
    # In a process of its own: it forks, which threads of a test process would not survive.
    found = subprocess.run(
        [sys.executable, SCRIPT, "--kills", "20", "--options", f"--data {few} --clients 10"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)},
    )
    assert found.returncode == 0, found.stdout + found.stderr
    *rows, last = found.stdout.splitlines()[1:]
    assert len(rows) == 10, found.stdout
    kills = Counter[str]()
    for row in rows:
        name, *counts = row.rsplit(maxsplit=5)
        assert sum(map(int, counts)) > 0, f"{name} was never killed"
        kills["anywhere"] += int(counts[0])
        kills["inside a write"] += sum(map(int, counts[1:]))
    assert kills.total() >= 20
    assert min(kills["anywhere"], kills["inside a write"]) > 0
    assert last.endswith("came out as undisturbed, byte for byte; 0 did not.")


def test_a_file_that_differs_would_be_seen(tmp_path: Path, monkeypatch) -> None:
    spec = importlib.util.spec_from_file_location("kills", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    kills = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "kills", kills)
    spec.loader.exec_module(kills)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        for file in kills.FILES:
            (tmp_path / folder / file).write_bytes(b"same")
    assert kills.alike(tmp_path / "a", tmp_path / "b")
    (tmp_path / "b" / kills.FILES[-1]).write_bytes(b"sane")
    assert not kills.alike(tmp_path / "a", tmp_path / "b")
