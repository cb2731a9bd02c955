"""Several processes: the same bits as one, refusals first, and nothing left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glocal.core import files
from glocal.core.errors import GlocalError
from glocal.experiment import parallel as workers
from glocal.experiment import result_files
from glocal.experiment.config import Config
from glocal.experiment.fit import train_all
from glocal.experiment.runner import Callbacks

FEW: dict[str, Any] = {
    "clients": 4,
    "partition": "iid",
    "rounds": 2,
    "repeats": 2,
    "baseline": "local(max_epochs=2)",
    "model": "mlp(8)",
    "engine": "sequential",  # processes start faster without the others
}
SPECS = ["fedavg", "local(max_epochs=2)", "ditto+aaggff-d"]


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Settings of quick runs, on few examples."""
    file = tmp_path_factory.mktemp("data") / "few.npz"
    np.savez(file, x=np.random.default_rng(0).normal(size=(200, 64)), y=np.arange(200) % 10)
    return {"partition": "dirichlet(0.3)", **FEW, "data": str(file)}


def trained(settings: Config) -> tuple[bytes, dict[str, Any], list[tuple[str, Any]]]:
    lines: list[tuple[str, Any]] = []
    fed = settings.federation()
    done = dict(
        train_all(
            SPECS, settings, fed, Callbacks(on_line=lambda spec, line: lines.append((spec, line)))
        )
    )
    assert list(done) == SPECS
    return files.dump(result_files.result(done)), done, lines


def test_processes_give_the_same_bits(few: dict[str, Any]) -> None:
    one, first, lines = trained(Config(**few, jobs=1))
    two, second, others = trained(Config(**few, jobs=2))
    assert one == two
    key = lambda item: (item[0], item[1]["repeat"], item[1]["round"])  # noqa: E731
    assert sorted(lines, key=key) == sorted(others, key=key)
    for spec in SPECS:
        a, b = first[spec], second[spec]
        assert a.history == b.history
        assert {k: v.tolist() for k, v in a.model.items()} == {
            k: v.tolist() for k, v in b.model.items()
        }
        assert a.is_baseline == b.is_baseline


def test_rule() -> None:
    long = Config(rounds=50, repeats=5, jobs=0)
    assert workers.jobs_for(len(SPECS), long, True) == min(workers.cores(), 20)
    assert workers.jobs_for(len(SPECS), long, False) == 1
    assert workers.jobs_for(len(SPECS), Config(rounds=2, jobs=0), True) == 1
    assert workers.jobs_for(1, Config(rounds=2, jobs=9), False) == 2


def test_a_worker_by_itself(few: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process does, done here."""
    import pickle

    said: list[Any] = []

    class Queue:
        put = staticmethod(said.append)

    config = Config(**few)
    methods = {spec: spec for spec in SPECS}
    worker = workers._Worker(config, config.federation(), methods, Queue, {})
    monkeypatch.setattr(workers, "_WORKER", [worker])
    first, second = pickle.loads(workers._work("fedavg", (0, 1), 2))
    assert first.model
    assert not second.model
    (alone,) = pickle.loads(workers._work("local(max_epochs=2)", (0,), 1))
    assert alone.traffic.params_up == 0
    assert {m[0] for m in said} == {"tick", "line"}


def test_what_cannot_be_done_is_refused_first() -> None:
    settings = Config(**{**FEW, "clients": 8}, fraction=0.5, jobs=2)
    with pytest.raises(GlocalError, match="aaggff-s needs every client"):
        list(train_all(["fedavg", "aaggff-s"], settings, settings.federation()))


def test_an_error_in_a_process_is_a_sentence() -> None:
    """One that only training can meet."""
    settings = Config(**FEW, jobs=2)
    with pytest.raises(GlocalError, match="not finite"):
        list(train_all(["fedavg(lr=1e30)"], settings, settings.federation()))


def children(of: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(of)], capture_output=True, text=True)
    return [int(line) for line in found.stdout.split()]


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/status").read_text().split("State:")[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False


def until(event: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    """Wait for an event; five minutes without it, or the end of the process, are a failure."""
    for _ in range(6000):
        if event():
            return
        assert process is None or process.poll() is None, "it ended before"
        time.sleep(0.05)
    raise AssertionError("it never came")


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks into /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nobody_is_left_running(how: signal.Signals, few: dict[str, Any], tmp_path: Path) -> None:
    """Neither after Ctrl-C, which reaches everybody, nor when the parent alone is killed."""
    command = [sys.executable, "-m", "glocal", "compare", "fedavg", "ditto", "--rounds", "100000"]
    # The engine that compiles nothing for so many rounds.
    command += [
        "--data",
        few["data"],
        "--clients",
        "2",
        "--model",
        "logistic",
        "--engine",
        "sequential",
    ]
    command += ["--baseline", "none", "--repeats", "1", "--no-tune", "--partition", "iid"]
    process = subprocess.Popen(
        [*command, "--jobs", "2", "--out", str(tmp_path / "out")],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        lines = tmp_path / "out" / "fedavg" / "metrics.jsonl"
        until(lambda: lines.is_file() and lines.stat().st_size > 0, process)
        workers_of = children(process.pid)
        assert len(workers_of) >= 2
        if how == signal.SIGINT:
            os.killpg(process.pid, how)
        else:
            process.kill()
        _, err = process.communicate()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert "Traceback" not in err
        assert "stopped" in err
    until(lambda: not any(alive(pid) for pid in workers_of))
