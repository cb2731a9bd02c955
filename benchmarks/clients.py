"""Time per round and memory against the number of clients in all, with as many sampled a round.

python benchmarks/clients.py                        the curve: 100 … 1,000,000 clients
python benchmarks/clients.py --most 10000           up to so many
python benchmarks/clients.py --states disk          with the clients' states on disk

Models of one kilobyte (250 parameters), ditto (every client keeps a personal model), five examples
a client. Each case has a process of its own. A round is timed whole: drawing the cohort, gathering
its states, training, keeping its new states, combining. In the first round everybody is new; with
many clients nearly everybody is in every round, with few nobody is after some.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

import glocal
from glocal.core import tree
from glocal.experiment import setup as setups
from glocal.experiment.config import Config
from glocal.experiment.runner import runner_of

CLIENTS = tuple(10**power for power in range(2, 7))
SAMPLED = (100, 1000)
EXAMPLES, FEATURES, CLASSES = 5, 24, 10
WARM = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=CLIENTS[-1])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--method", default="ditto(epochs=1, batch_size=5)")
    parser.add_argument("--states", default="auto", help="auto, device, host or disk")
    parser.add_argument("--seen", action="store_true", help="everybody has a state beforehand")
    parser.add_argument("--case", type=int, nargs=2, metavar=("CLIENTS", "SAMPLED"))
    chosen = parser.parse_args()
    if chosen.case:
        clients, sampled = chosen.case
        asked = (chosen.rounds, chosen.method, chosen.states, chosen.seen)
        print(json.dumps(measured(clients, sampled, *asked)))
        return
    print(f"{chosen.method}, logistic on {FEATURES} features, states: {chosen.states};")
    load = f"load average {os.getloadavg()[0]:.1f}"
    print(f"medians of {chosen.rounds} rounds after {WARM}; {load}\n")
    print(
        "| clients in all | a round | ms a round | lowest | highest | first round, ms "
        "| new a round | data, MB | peak, MB |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for sampled in SAMPLED:
        for clients in CLIENTS:
            if not sampled <= clients <= chosen.most:
                continue
            command = [sys.executable, __file__, "--case", str(clients), str(sampled)]
            command += ["--rounds", str(chosen.rounds), "--method", chosen.method]
            command += ["--seen"] * chosen.seen
            done = subprocess.run(
                [*command, "--states", chosen.states], stdout=subprocess.PIPE, text=True, check=True
            )
            found = json.loads(done.stdout)
            cells = (
                f"{clients:,}",
                f"{sampled:,}",
                *(f"{found[k]:.1f}" for k in ("median", "lowest", "highest", "first")),
                *(f"{found[k]:.0f}" for k in ("new", "data", "peak")),
            )
            print("|", " | ".join(cells), "|", flush=True)


def measured(
    clients: int, sampled: int, rounds: int, method: str, states: str, seen: bool
) -> dict[str, Any]:
    """One case: milliseconds and megabytes."""
    torch.set_num_threads(1)
    order = Config(model="logistic", rounds=10**6, sampled=sampled, states=states)
    here = setups.make(order, data(clients), 0)
    held = memory("VmRSS")
    training = runner_of("method", method).check(here)
    progress = training.begin(here.task.params)
    if seen:
        one = training.make(progress, training.halves[0])(0)
        everybody = tree.map(lambda x: x.expand(clients, *x.shape), one)
        progress.clients.filled(torch.arange(clients), everybody)
    times, new = [], []
    for _ in range(WARM + rounds):
        before = int(progress.clients.seen.sum())
        began = time.perf_counter()
        training.one_round(progress)
        times.append(1000 * (time.perf_counter() - began))
        new.append(int(progress.clients.seen.sum()) - before)
    return {
        "median": statistics.median(times[WARM:]),
        "lowest": min(times[WARM:]),
        "highest": max(times[WARM:]),
        "first": times[0],
        "new": statistics.mean(new[WARM:]),
        "data": held / 1e6,
        "peak": memory("VmHWM") / 1e6,
    }


def data(clients: int) -> glocal.Federation:
    n = clients * EXAMPLES
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(n, FEATURES, generator=draw)
    y = torch.randint(CLASSES, (n,), generator=draw)
    return glocal.federation(x, y, clients=torch.arange(n) // EXAMPLES, classes=CLASSES)


def memory(what: str) -> int:
    """A line of ``/proc/self/status``, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(what + ":"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"{what} is not known here: this needs Linux.")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
