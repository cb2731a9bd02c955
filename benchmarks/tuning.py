"""Settings found by ``glocal tune`` against the whole grid, and what training side by side saves.

    python benchmarks/tuning.py              on digits, 20 clients, an MLP; a few minutes
    python benchmarks/tuning.py --keep       and in tuning.txt beside this

The grid: eight learning rates, each trained for all rounds in five repeats; the standard error is
that of the best one's mean validation accuracy over repeats. The search sees one repeat of other
seeds. Times are of the same candidates, rounds and cores, on one thread, in interleaved runs: all
in one search, and each in a search of its own; the median of three, after one that warms up.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import glocal

RATES = [0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 1.0]
ROUNDS, REPEATS = 30, 5


def validated(spec: str, fed: glocal.Federation) -> list[float]:
    """Mean validation accuracy of each repeat."""
    run = glocal.fit(spec, fed, rounds=ROUNDS, repeats=REPEATS, baseline="none", diverged="skip")
    return [float(repeat.val_score.double().nanmean()) for repeat in run.repeats]


def chosen(method: str, fed: glocal.Federation, seeds: int) -> list[str]:
    """What searches choose, beside the grid."""
    grid = {rate: validated(f"{method}(lr={rate})", fed) for rate in RATES}
    means = {rate: statistics.fmean(values) for rate, values in grid.items()}
    best = max(means, key=lambda rate: means[rate])
    error = statistics.stdev(grid[best]) / REPEATS**0.5
    lines = [f"{method}: grid of {len(RATES)} rates x {ROUNDS} rounds x {REPEATS} repeats"]
    lines += [f"  lr {rate:<6} {100 * mean:5.1f}" for rate, mean in means.items()]
    lines.append(f"  best {best}, standard error {100 * error:.2f}")
    for seed in range(1, seeds + 1):
        settings: dict[str, Any] = {"rounds": ROUNDS, "seed": seed, "diverged": "skip"}
        found = glocal.tune(method, {"lr": RATES}, fed, **settings)
        mean = means[found.settings["lr"]]
        within = "within" if mean >= means[best] - error else "NOT within"
        lines.append(
            f"  search, seed {seed}: {found.rounds} rounds of {len(RATES) * ROUNDS}, lr "
            f"{found.settings['lr']}, {100 * mean:.1f} on the grid: {within} one standard error"
        )
    return lines


def times(method: str, fed: glocal.Federation) -> list[str]:
    """Candidates side by side, and one after another."""
    settings: dict[str, Any] = {"rounds": ROUNDS, "diverged": "skip"}

    def together() -> float:
        began = time.perf_counter()
        glocal.tune(method, {"lr": RATES}, fed, **settings)
        return time.perf_counter() - began

    def apart() -> float:
        """The same rounds of the same candidates: what the search above trains."""
        found = glocal.tune(method, {"lr": RATES}, fed, **settings)
        began = time.perf_counter()
        for trial in found.trials:
            alone = {**settings, "rounds": trial.rounds}
            glocal.tune(method, {"lr": [trial.settings["lr"]]}, fed, **alone)
        return time.perf_counter() - began

    together(), apart()
    pairs = [(together(), apart()) for _ in range(3)]
    a, b = (statistics.median(values) for values in zip(*pairs, strict=True))
    return [
        f"{method}: side by side {a:.2f} s, one after another {b:.2f} s: {b / a:.2f} times as fast"
    ]


def main() -> None:
    """Search, time and print, and keep where that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=["fedavg", "ditto"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    fed = glocal.load("digits")
    lines = [
        f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start",
        f"python benchmarks/tuning.py --methods {' '.join(given.methods)} --seeds {given.seeds}",
    ]
    print("\n".join(lines))
    for method in given.methods:
        for part in (chosen(method, fed, given.seeds), times(method, fed)):
            print("\n".join(part), flush=True)
            lines += part
    if given.keep:
        Path(__file__).with_suffix(".txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
