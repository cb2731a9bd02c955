"""What repeats cost: 1, 3 and 5 of a method, side by side and one after another.

    python benchmarks/repeats.py
    python benchmarks/repeats.py --device cuda --engine auto

fedavg and ditto on digits as ``glocal compare`` has it (20 clients, dirichlet(0.3), mlp, 50
rounds): training and evaluation, without the local baseline. On a CPU it is seconds of the
processor on one thread, compiling included, since other work on the machine changes these least; on
a GPU seconds of the clock. Each case runs once before it is timed; then all cases take turns, and
the median of ``--times`` is printed, with how many times one repeat that is. Needs torch and numpy.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time

import torch

import glocal
from glocal.data.federation import Federation
from glocal.experiment import setup as setups
from glocal.experiment.config import Config
from glocal.experiment.runner import run_seeds, runner_of

COUNTS = (1, 3, 5)


def now(device: str) -> float:
    """The clock; on a CPU that of this process and of those that compile for it."""
    if device != "cpu":
        torch.cuda.synchronize()
        return time.perf_counter()
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def seconds(method: str, config: Config, fed: Federation, lanes: int) -> float:
    """What all repeats take, from their splits and models to what they came to."""
    began = now(config.device)
    first = setups.make(config, fed, 0)
    several = [first, *(setups.make(config, first.fed, r) for r in range(1, config.repeats))]
    run_seeds(runner_of(method, method), several, lanes=lanes)
    return now(config.device) - began


def main() -> None:
    """Time all cases, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--engine", nargs="+", default=["vectorised", "compiled", "auto"])
    parser.add_argument("--method", nargs="+", default=["fedavg", "ditto"])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--together", action="store_true", help="not one after another")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    where = f"{platform.machine()}, {os.cpu_count()} cores, {given.threads} thread(s)"
    if given.device != "cpu":
        where = torch.cuda.get_device_name()
    print(f"{where}, torch {torch.__version__}, load {os.getloadavg()[0]:.1f} at the start")
    print(f"{given.rounds} rounds; seconds, median of {given.times}; in brackets times one repeat")
    print("python benchmarks/repeats.py", *sys.argv[1:])
    fed = glocal.load("digits", clients=20, partition="dirichlet(0.3)")
    cases = [(1, 1), *((n, n) for n in COUNTS[1:])]
    if not given.together:
        cases += [(n, 1) for n in COUNTS[1:]]
    head = [f"{n} {'side by side' if lanes > 1 else 'one by one'}" for n, lanes in cases[1:]]
    print(f"{'':24}{'one':>8}" + "".join(f"{text:>20}" for text in head))
    for method in given.method:
        for engine in given.engine:
            taken: dict[tuple[int, int], list[float]] = {case: [] for case in cases}
            for _ in range(1 + given.times):
                for repeats, lanes in cases:
                    config = Config(
                        repeats=repeats, rounds=given.rounds, engine=engine, device=given.device
                    )
                    taken[repeats, lanes].append(seconds(method, config, fed, lanes))
            medians = [statistics.median(taken[case][1:]) for case in cases]
            cells = [f"{t:10.2f} ({t / medians[0]:4.2f} ×)" for t in medians[1:]]
            line = f"{method + ', ' + engine:24}{medians[0]:8.2f}" + "".join(
                f"{cell:>20}" for cell in cells
            )
            print(line, flush=True)


if __name__ == "__main__":
    main()
