"""Workers, kept alive and told to train in turn; what they took, and whether they did the work.

While one has its turn the others are stopped, with all processes they started: some keep busy even
when they have nothing to do, and a round of milliseconds is as long as what a neighbour takes.
"""

from __future__ import annotations

import json
import os
import platform
import select
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glocal.studies.bench import TOLERANCE
from peers import cases
from peers.work import Arrays, Work, load_params

ROOT = Path(__file__).parent.parent.parent
LATER = 10 * TOLERANCE
"""How far apart parameters may be after the last round."""

SETTLE = 0.2
"""Seconds for a worker that is woken to do what it thinks it has missed."""

PATIENCE = 600.0
"""Seconds that a worker may take to answer."""


class Lost(Exception):  # noqa: N818 it is not the worker's error alone
    """A worker that died or does not answer."""


@dataclass(frozen=True)
class Contestant:
    """Somebody who trains rounds: its file here, and the settings of which the best is taken."""

    name: str
    module: str
    settings: tuple[str, ...]
    environment: str | None = None
    """Of which virtual environment it needs the Python; None: this one."""
    checkout: Path | None = None
    """Another checkout of glocal, which has its own environment and its own file of this name."""

    def python(self, envs: Path) -> Path:
        """The interpreter that has its packages."""
        if self.checkout is not None:
            return self.checkout / ".venv" / "bin" / "python"
        return envs / self.environment / "bin" / "python" if self.environment else _own()

    def missing(self, envs: Path) -> str | None:
        """Why it cannot run, in one line."""
        if self.python(envs).exists():
            return None
        if self.checkout is not None:
            return f"{self.name}: skipped, {self.checkout} has no .venv; make setup there makes it."
        return (
            f"{self.name}: skipped, {envs / (self.environment or '')} is not there; "
            f"python benchmarks/peers.py --install {self.environment} makes it."
        )


THREADS = ("1 thread", "all threads")
CONTESTANTS = (
    Contestant("glocal", "ours", ("auto", "sequential", "vectorised", "compiled")),
    Contestant("plain loop", "loop", THREADS),
    Contestant("FedJAX", "fedjax", ("jit", "pmap, 2 devices"), "fedjax"),
    Contestant("pfl", "pfl", (*THREADS, "2 processes"), "pfl"),
    Contestant("FedLab", "fedlab", THREADS, "fedlab"),
    Contestant("Flower", "flower", ("1 thread a client", "all threads a client"), "flower"),
)


OWN = CONTESTANTS[0]


def beside(checkouts: Sequence[Path]) -> list[Contestant]:
    """Other checkouts of glocal; the same one twice shows how far apart equal code is."""
    return [
        replace(OWN, name=f"{OWN.name} {number} ({path.name})", checkout=path.resolve())
        for number, path in enumerate(checkouts, 2)
    ]


def _own() -> Path:
    return Path(sys.executable)


@dataclass
class Worker:
    """A contestant at one setting, in a process of its own."""

    who: Contestant
    setting: str
    process: subprocess.Popen[str]
    log: Path
    ready_s: float = 0.0
    note: str = ""
    seconds: list[float] = field(default_factory=list)
    peak_mb: float | None = None
    losses: list[float] = field(default_factory=list)
    difference: float = 0.0
    failed: str | None = None

    @classmethod
    def start(cls, who: Contestant, setting: str, work: Work, envs: Path) -> Worker:
        """Start it and wait until it is ready for its first round."""
        log = work.folder / f"{who.name}-{setting}.log".replace(" ", "-")
        command = [str(who.python(envs)), "-m", "peers.worker", who.module, setting]
        began = time.perf_counter()
        with log.open("w") as errors:
            process = subprocess.Popen(
                [*command, str(work.folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=_environment(who.checkout or ROOT),
                cwd=work.folder,
            )
        worker = cls(who, setting, process, log)
        try:
            worker.note = worker._answer()["note"]
        except Lost:
            worker.stop()
            raise
        worker.ready_s = time.perf_counter() - began
        return worker

    def turn(self, r: int) -> None:
        """Train round ``r``."""
        self.seconds.append(self._ask({"do": "round", "round": r})["seconds"])

    def params(self, folder: Path) -> Arrays:
        """The model as it stands."""
        file = folder / "params.npz"
        self._ask({"do": "params", "file": str(file)})
        return load_params(file)

    def pause(self) -> None:
        """Nothing of it runs until it is woken."""
        self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        """It goes on where it was."""
        self._signal(signal.SIGCONT)
        time.sleep(SETTLE)

    def _signal(self, what: signal.Signals) -> None:
        for pid in _family(self.process.pid):
            try:
                os.kill(pid, what)
            except ProcessLookupError:  # it ended by itself meanwhile
                continue

    def stop(self) -> None:
        """Let it end, or end it."""
        self.wake()
        try:
            # On a signal Ray would leave its processes behind, so it is asked first.
            self.process.communicate('{"do": "stop"}\n', timeout=30)
        except (OSError, ValueError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.communicate()

    def _ask(self, what: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(what) + "\n")
            self.process.stdin.flush()
        except OSError as error:
            raise Lost(self._last_words()) from error
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
            raise Lost(f"no answer in {PATIENCE:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            raise Lost(self._last_words())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return f"it died: {lines[-1] if lines else 'without a word'}"

    def result(self, warm_up: int) -> dict[str, Any]:
        """What is kept of it."""
        timed = self.seconds[warm_up:]
        fine = self.failed is None and bool(timed)
        return {
            "setting": self.setting,
            "note": self.note,
            "failed": self.failed,
            "ms": 1e3 * statistics.median(timed) if fine else None,
            "times_ms": [round(1e3 * s, 3) for s in timed] if fine else [],
            "ready_s": self.ready_s,
            "first_s": self.seconds[0] if self.seconds else None,
            "peak_mb": self.peak_mb,
            "loss": self.losses[-1] if self.losses else None,
            "difference": self.difference,
        }


def measure(
    case: cases.Case,
    who: Sequence[Contestant],
    folder: Path,
    envs: Path,
    repeats: int,
    warm_up: int,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Time everybody on a case: all start, then round after round everybody trains it in turn."""
    work = cases.drawn(case, folder / case.name, (warm_up + repeats) * case.a_turn)
    work.save()
    right = list(cases.reference(work))
    workers: list[Worker] = []
    failed: list[tuple[Contestant, str, str]] = []
    try:
        for contestant in who:
            for setting in contestant.settings:
                say(f"{case.name}: {contestant.name}, {setting} starts")
                try:
                    worker = Worker.start(contestant, setting, work, envs)
                except Lost as lost:
                    failed.append((contestant, setting, str(lost)))
                    continue
                workers.append(worker)
                _train(worker, 0)
                _check(worker, work, right[0])
                worker.pause()
        for first in range(0, work.rounds, case.a_turn):
            say(f"{case.name}: round {first} of {work.rounds}")
            for worker in workers:
                worker.wake()
                for r in range(max(1, first), first + case.a_turn):
                    _train(worker, r)
                worker.pause()
        for worker in workers:
            worker.wake()
            _check(worker, work, right[-1], LATER)
            worker.pause()
            worker.peak_mb = peak(worker.process.pid)
    finally:
        for worker in workers:
            worker.stop()
    found: dict[str, list[dict[str, Any]]] = {c.name: [] for c in who}
    for worker in workers:
        found[worker.who.name].append(worker.result(warm_up * case.a_turn))
    for contestant, setting, why in failed:
        found[contestant.name].append({"setting": setting, "failed": why, "ms": None})
    return {
        "name": case.name,
        "case": str(case),
        "parameters": sum(p.size for p in work.initial),
        "loss_before": cases.loss(work, work.initial),
        "loss": cases.loss(work, right[-1]),
        "contestants": [{"name": name, "settings": all_} for name, all_ in found.items()],
    }


def _train(worker: Worker, r: int) -> None:
    if worker.failed is not None:
        return
    try:
        worker.turn(r)
    except Lost as lost:
        worker.failed = str(lost)


def _check(worker: Worker, work: Work, right: Arrays, apart: float = TOLERANCE) -> None:
    """Whether it stands where the plain loop does."""
    if worker.failed is not None:
        return
    try:
        params = worker.params(work.folder)
    except Lost as lost:
        worker.failed = str(lost)
        return
    loss, gap, why = same_work(work, params, right, apart)
    worker.losses.append(loss)
    worker.difference = max(worker.difference, gap)
    worker.failed = why


def same_work(
    work: Work, params: Arrays, right: Arrays, apart: float = TOLERANCE
) -> tuple[float, float, str | None]:
    """The loss, the largest difference of a parameter, and what is wrong, if anything is.

    Parameters may be so far ``apart``: rounding grows from step to step.
    """
    if [p.shape for p in params] != [p.shape for p in right]:
        return float("nan"), float("nan"), "its model has other shapes"
    loss, goal = cases.loss(work, params), cases.loss(work, right)
    gap = max(float(np.abs(a - b).max()) for a, b in zip(params, right, strict=True))
    # Written so that what is not a number fails too.
    if abs(loss - goal) <= TOLERANCE and gap <= apart:
        return loss, gap, None
    return (
        loss,
        gap,
        (f"not the same work: loss {loss:.6f}, should be {goal:.6f}; parameters {gap:.1e} apart"),
    )


def peak(pid: int) -> float | None:
    """The most memory a worker had, in MB, with the processes it started; None if not known.

    Of several processes, pages that they share now are counted once among them.
    """
    try:
        family = _family(pid)
        if len(family) == 1:
            return _status(pid, "VmHWM") / 1024
        total = 0.0
        for each in family:
            rollup = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
            own = next(int(line.split()[1]) for line in rollup if line.startswith("Pss:"))
            total += own + _status(each, "VmHWM") - _status(each, "VmRSS")
        return total / 1024
    except (OSError, StopIteration):
        return None


def _family(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "stat").read_text()
            except OSError:
                continue
            parents.setdefault(int(line.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        found.append(todo.pop())
        todo += parents.get(found[-1], [])
    return found


def _status(pid: int, what: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what + ":"))


def _environment(checkout: Path) -> dict[str, str]:
    """Everybody's own defaults for threads; nobody calls home."""
    kept = {
        k: v
        for k, v in os.environ.items()
        if k not in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "MKL_NUM_THREADS", "VIRTUAL_ENV")
    }
    path = [str(checkout / "benchmarks"), str(checkout / "src")]
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    return {
        **kept,
        **quiet,
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONWARNINGS": "ignore",
    }


def machine() -> dict[str, Any]:
    """Where it was measured."""
    return {
        "cores": os.cpu_count(),
        "processor": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "date": time.strftime("%Y-%m-%d"),
    }
