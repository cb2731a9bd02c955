"""How true the estimate of a run's memory is: it against the growth that the system sees.

python benchmarks/memory.py                         all cases, each in a process of its own
python benchmarks/memory.py --case 3                one of them, from 0

A ratio under 1 means that a run takes more than was said: what comes and goes inside an operation
is not counted. One far above 1 would refuse runs that fit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import glocal
from glocal.core import rng
from glocal.experiment import setup as setups
from glocal.experiment.config import Config
from glocal.experiment.runner import memory_needed, runner_of

CASES: tuple[tuple[str, str, str, int, int], ...] = (
    # method, model, engine, clients, clients in a round
    ("fedavg", "mlp(1024, 1024)", "vectorised", 20, 20),
    ("fedavg", "mlp(1024, 1024)", "sequential", 20, 20),
    ("ditto", "mlp(200)", "vectorised", 1000, 1000),
    ("ditto", "mlp(1024, 1024)", "sequential", 20, 20),
    ("scaffold", "mlp(200)", "sequential", 1000, 1000),
    ("scaffold", "lenet", "vectorised", 1000, 1000),
    ("ditto", "lenet", "sequential", 1000, 100),
    ("fedavg", "lenet", "vectorised", 20, 20),
)
EXAMPLES, SHAPE, CLASSES = 12, (1, 28, 28), 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", type=int)
    chosen = parser.parse_args().case
    if chosen is not None:
        print(json.dumps(measured(*CASES[chosen])))
        return
    print(
        "| method | model | engine | clients | a round | estimate, MB | growth, MB | ratio | ms |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for number, case in enumerate(CASES):
        command = [sys.executable, __file__, "--case", str(number)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout)
        need, growth = (found[k] / 1e6 for k in ("estimate", "growth"))
        cells = (
            *case,
            f"{need:.0f}",
            f"{growth:.0f}",
            f"{need / growth:.2f}",
            f"{found['ms']:.0f}",
        )
        print("|", " | ".join(str(cell) for cell in cells), "|", flush=True)


def measured(spec: str, model: str, engine: str, clients: int, sampled: int) -> dict[str, Any]:
    """The estimate, how long it took, and by how much the process grew."""
    rates = "" if clients < 1000 else "lr=0.1, "  # one for all is enough to be waited for
    baseline = f"local({rates}max_epochs=2)"
    settings: dict[str, Any] = {"rounds": 2, "engine": engine, "baseline": baseline}
    # What is loaded once (parts of torch, threads) is no part of what a run takes.
    glocal.fit(spec, data(4), model="mlp(8)" if "mlp" in model else model, **settings)
    fed = data(clients)
    order = Config(model=model, sampled=sampled, **settings)
    here = setups.make(order, fed, 0)
    began = time.perf_counter()
    need = memory_needed(runner_of(spec, spec), here)
    ms = 1000 * (time.perf_counter() - began)
    assert need is not None
    del here
    forget_peak()
    before = memory("VmRSS")
    glocal.fit(spec, fed, model=model, sampled=sampled, **settings)
    return {"estimate": need.total, "growth": memory("VmHWM") - before, "ms": ms, **need.phases}


def data(clients: int) -> glocal.Federation:
    n = clients * EXAMPLES
    x, y = rng.normal(rng.key(0), (n, *SHAPE)), rng.randint(rng.key(1), CLASSES, (n,))
    return glocal.federation(x, y, clients=[i // EXAMPLES for i in range(n)])


def memory(what: str) -> int:
    """A line of ``/proc/self/status``, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(what + ":"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"{what} is not known here: this needs Linux.")


def forget_peak() -> None:
    """The peak from now on, where the system lets it be set back."""
    Path("/proc/self/clear_refs").write_text("5")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
