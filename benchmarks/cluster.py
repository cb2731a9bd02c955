"""What a Ray cluster gains or costs: a cohort on workers, and methods and repeats as jobs.

For a small and a large model: how long a round of the sequential engine takes, and of 1 and 2
workers; then twelve jobs (three methods, four repeats) in one process, in two and on the cluster.
What comes out is the same, to the bit, which is checked. Needs ``glocal[ray]``, an idle machine:

    python benchmarks/cluster.py > benchmarks/cluster.txt
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from typing import Any

import torch

import glocal
from glocal.engines import Cluster, Sequential
from glocal.methods import resolve
from glocal.nn import models
from glocal.nn.task import Task
from glocal.slots.method import as_plan
from glocal.training.loop import Training
from glocal.training.sampling import Fraction

COHORTS = {"small (mlp(64))": "mlp(64)", "large (mlp(1000,1000))": "mlp(1000,1000)"}
METHODS = ["fedavg", "ditto", "fedprox(mu=0.1)"]


def rounds(fed: glocal.Federation, model: str, engine: Any, count: int) -> tuple[float, Any]:
    """Seconds a round, without the first, in which data is sent; and the model at the end."""
    shape = tuple(fed.x.shape[1:])
    task = Task(models.build(model, input_shape=shape, classes=fed.classes))
    plan = as_plan(resolve("fedavg"))
    training = Training(plan, task, fed, engine, Fraction(1.0), count + 1, seed=0)
    progress = training.begin(task.params)
    training.one_round(progress)
    began = time.monotonic()
    for _ in range(count):
        training.one_round(progress)
    return (time.monotonic() - began) / count, progress.server["params"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--job-rounds", type=int, default=50)
    arguments = parser.parse_args()
    fed = glocal.load("digits", clients=20)
    print(
        f"{os.cpu_count()} cores, {platform.machine()}; 20 clients of digits, fedavg, all of them"
    )
    print(f"{'a round, in ms':28}{'sequential':>12}{'1 worker':>12}{'2 workers':>12}")
    for name, model in COHORTS.items():
        cells, ends = [], []
        for engine in (Sequential(), Cluster(1), Cluster(2)):
            seconds, end = rounds(fed, model, engine, arguments.rounds)
            cells.append(f"{1000 * seconds:12.0f}")
            ends.append(end)
        same = all(torch.equal(ends[0][k], end[k]) for end in ends for k in end)
        print(f"{name:28}{''.join(cells)}   {'same bits' if same else 'OTHER BITS'}", flush=True)
    settings: dict[str, Any] = {
        "rounds": arguments.job_rounds,
        "repeats": 4,
        "baseline": "none",
        "engine": "sequential",
        "tune": False,
        "progress": False,
    }
    print(f"twelve jobs: {', '.join(METHODS)} × 4 repeats, {arguments.job_rounds} rounds, in s")
    first: Any = None
    for jobs in (1, 2, "ray"):
        began = time.monotonic()
        done = glocal.compare(METHODS, fed, jobs=jobs, **settings)
        seconds = time.monotonic() - began
        first = first or done
        same = all(
            torch.equal(done[m].model[k], w) for m in METHODS for k, w in first[m].model.items()
        )
        said = "same bits" if same else "OTHER BITS"
        print(f"--jobs {jobs!s:21}{seconds:12.1f}   {said}", flush=True)


if __name__ == "__main__":
    main()
