"""What learning curves cost: the share of a run's CPU time in which it is evaluated by round.

    python benchmarks/curves.py              on digits, 20 clients, an MLP; about two minutes
    python benchmarks/curves.py --keep       and in curves.txt beside this

Every run has 50 rounds and the default of --validate-every, on one thread; each is trained once
before (what is compiled is kept) and then three times, and the median share is printed.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import torch

import glocal
from glocal.training import evaluated_rounds

CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("fedavg", {}),
    ("fedavg", {"fraction": 0.1}),
    ("fedavg", {"repeats": 3}),
    ("fedavg", {"metric": "log_loss"}),
    ("ditto", {}),
    ("lg-fedavg", {}),
    ("superfed-mm", {}),  # of which clients choose among eleven mixtures
    ("pfedme", {"fraction": 0.3}),  # whose absent clients train before they are evaluated
)


def timed(module: Any, name: str, spent: list[float]) -> Any:
    """Let the calls of a function be timed; returns the function as it was."""
    real = getattr(module, name)

    def call(*args: Any, **settings: Any) -> Any:
        began = time.process_time()
        result = real(*args, **settings)
        spent.append(time.process_time() - began)
        return result

    setattr(module, name, call)
    return real


def measured(method: str, settings: dict[str, Any], fed: glocal.Federation) -> str:
    """A line of the table."""
    found = []
    for repeat in range(4):
        spent: list[float] = []
        real = timed(evaluated_rounds, "curve_point", spent)
        began = time.process_time()
        glocal.fit(method, fed, rounds=50, baseline="none", progress=False, **settings)
        total = time.process_time() - began
        evaluated_rounds.curve_point = real
        if repeat:
            found.append((sum(spent) / total, sum(spent), total, len(spent)))
    share, spent_in_all, total, points = statistics.median_low(found)
    words = " ".join(f"{k}={v}" for k, v in settings.items())
    return f"{method:12} {words:17} {points:5} {spent_in_all:8.2f} {total:8.2f} {100 * share:7.1f}"


def main() -> None:
    """Measure and print, and keep where that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", action="store_true")
    keep = parser.parse_args().keep
    torch.set_num_threads(1)
    fed = glocal.load("digits")
    load = os.getloadavg()[0]
    lines = [f"{platform.machine()}, {os.cpu_count()} cores, load {load:.1f} at the start"]
    lines.append(f"{'method':30} times   spent s    run s share %")
    print("\n".join(lines))
    for method, settings in CASES:
        lines.append(measured(method, settings, fed))
        print(lines[-1], flush=True)
    if keep:
        Path(__file__).with_suffix(".txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
