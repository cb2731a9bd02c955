"""Cells that are done, as small JSON files; and running those that are not, one or several at once.

A cell's file holds its figures, the seconds it took (over all attempts, on a device that it may
have shared; its part of those of several that trained as one), the device, the versions and the
digest of its settings. Training's checkpoints are in a folder of that digest, so that a cell whose
settings changed is begun anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import glocal
from glocal.core import locks
from glocal.core.files import write
from glocal.core.interrupts import Stopped, graceful, stop_requested
from papers.measuring import measured
from papers.tables import HERE, Cell

KEPT, QUICK, WORK = HERE / "cells", HERE / "quick", HERE / "work"
"""Cells in the repository; those of --quick, and checkpoints, which are not."""


@dataclass(frozen=True)
class Place:
    """Where cells are kept, and where they are trained."""

    kept: Path = KEPT
    """Cells are written here, and those that are here or in the repository are done."""
    work: Path = WORK
    device: str = "cpu"
    jobs: int = 1

    def file(self, cell: Cell) -> Path:
        """Of a cell that is done."""
        return self.kept / f"{cell.name}.json"

    def done(self, cell: Cell) -> dict[str, Any] | None:
        """What is kept of a cell; None, if there is nothing, or of other settings."""
        for path in (self.file(cell), KEPT / f"{cell.name}.json"):
            if path.is_file():
                found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
                if found["digest"] == cell.digest:
                    return found
        return None

    def folder(self, cells: Sequence[Cell]) -> Path:
        """Of the checkpoints of a cell, or of several that train as one."""
        digests = " ".join(sorted(cell.digest for cell in cells))
        whole = hashlib.sha256(digests.encode()).hexdigest()[:16] if len(cells) > 1 else digests
        return self.work / whole

    def round(self, cells: Sequence[Cell]) -> int:
        """The last round, of whatever was being trained, that is in the latest checkpoint."""
        files = self.folder(cells).glob("*/*.safetensors")
        latest = max(files, key=lambda path: (path.stat().st_mtime_ns, path.name), default=None)
        return int(latest.name[:8]) if latest else 0


def device_name(device: str) -> str:
    """The machine in words."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    count = {1: "one", 2: "two", 4: "four"}.get(n := os.cpu_count() or 1, str(n))
    kind = platform.machine().replace("x86_64", "x86-64")
    return f"{count} {kind} core{'s' * (n > 1)}"


def run(cells: Sequence[Cell], place: Place, stop: Callable[[], bool]) -> bool:
    """Train a cell, or several as one, and keep them.

    Returns whether they are done, or were stopped on the way.
    """
    with locks.hold(place.folder(cells)):
        return _run(cells, place, stop)


def _run(cells: Sequence[Cell], place: Place, stop: Callable[[], bool]) -> bool:
    work = place.folder(cells)
    clock = work / "seconds"
    before = float(clock.read_text()) if clock.exists() else 0.0
    began = time.monotonic()

    def taken() -> float:
        return before + time.monotonic() - began

    try:
        several = measured(cells, place.device, work, stop)
    except Stopped:
        clock.write_text(f"{taken():.1f}")
        return False
    for cell, figures in zip(cells, several, strict=True):
        found = {
            "cell": cell.name,
            "digest": cell.digest,
            "method": cell.method,
            "settings": cell.settings,
            "measure": cell.measure,
            "seed": cell.seed,
            "figures": figures,
            "seconds": round(taken() / len(cells), 1),
            "at_once": place.jobs,
            **({"as_one": len(cells)} if len(cells) > 1 else {}),
            "device": device_name(place.device),
            "torch": torch.__version__,
            "glocal": glocal.__version__,
            "python": platform.python_version(),
        }
        place.kept.mkdir(parents=True, exist_ok=True)
        write(place.file(cell), (json.dumps(found, indent=1) + "\n").encode())
    shutil.rmtree(work)
    return True


Ended = tuple[tuple[Cell, ...], bool | None]
"""Cells that train as one, and whether they are done; None: they failed, and it was said why."""


def run_all(several: Sequence[tuple[Cell, ...]], place: Place, until: float) -> Iterable[Ended]:
    """All of them in turn until the time is up: cells that train as one, and whether it is done."""

    def stop() -> bool:
        return stop_requested() or time.time() >= until

    with graceful():
        for cells in several:
            if stop():
                return
            if not locks.held(place.folder(cells)):  # another runner has it
                yield cells, run(cells, place, stop)


def run_in_processes(
    several: Sequence[tuple[Cell, ...]], place: Place, until: float, options: Sequence[str]
) -> Iterable[Ended]:
    """The same with so many processes at once, each of which trains one after another."""
    script = str(HERE / "run.py")
    notes: set[str] = set()

    def one(cells: tuple[Cell, ...]) -> Ended | None:
        left = until - time.time()
        if left <= 0:
            return None
        words = [sys.executable, script, *sorted({cell.table for cell in cells})]
        words += [word for cell in cells for word in ("--cell", cell.name)]
        words += ["--lanes", str(len(cells)), "--device", place.device]
        words += ["--seconds", f"{left:.0f}", "--at-once", str(place.jobs)]
        words += ["--kept", str(place.kept), *options]
        ended = subprocess.run(words, capture_output=True, text=True, check=False)
        said = {line for line in ended.stderr.splitlines() if line.startswith("glocal: ")}
        if new := sorted(said - notes):
            print("\n".join(new), flush=True)
            notes.update(new)
        if ended.returncode:
            print(f"{cells[0].name} failed: {ended.stderr.strip()[-2000:]}", flush=True)
            return cells, None
        return cells, all(place.done(cell) is not None for cell in cells)

    with ThreadPoolExecutor(place.jobs) as pool:
        yield from (ended for ended in pool.map(one, several) if ended is not None)
