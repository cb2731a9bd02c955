"""Synthetic data of settings to choose from: accuracy of a classifier trained on it alone.

    python benchmarks/synthetic_defaults.py 'fedcgan(lr=0.003)' 'fedcgan(lr=0.01)' --seeds 11 12 13
    python benchmarks/synthetic_defaults.py fedevg fedcgan fedcvae --clients 50 --seeds 1

A line for each spec and seed with the accuracy on validation data, as in the summary of ``glocal
run SPEC --seed SEED`` with the other defaults; then the mean. ``--test`` adds that on test data,
which is for settings that are chosen. What docs quote is kept in synthetic-defaults.txt.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from typing import Any

import glocal


def figures(spec: str, seed: int, asked: argparse.Namespace) -> dict[str, Any]:
    """Those of the examples that one run ends with."""
    fed = glocal.load("digits", clients=asked.clients, partition=asked.partition, seed=seed)
    run = glocal.fit(spec, fed, seed=seed, engine=asked.engine, baseline="none")
    assert run.made is not None
    return run.made.figures


def shown(found: Sequence[dict[str, Any]], test: bool) -> str:
    """The mean of these runs in per cent, on validation data and, if asked for, on test data."""
    parts = [("validation", "val_accuracy")] + [("test", "accuracy")] * test
    means = {name: statistics.fmean(one[key] for one in found) for name, key in parts}
    return ", ".join(f"{name} {100 * mean:.1f}" for name, mean in means.items())


def main() -> None:
    """Print a line for each run, and one for each spec."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("specs", nargs="+", metavar="SPEC")
    parser.add_argument("--seeds", nargs="+", type=int, default=[11, 12, 13])
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--partition", default="dirichlet(0.3)")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--test", action="store_true", help="also on test data")
    asked = parser.parse_args()
    print(f"digits, {asked.clients} clients, {asked.partition}, 50 rounds", flush=True)
    for spec in asked.specs:
        found = []
        for seed in asked.seeds:
            found.append(figures(spec, seed, asked))
            print(f"{spec} | seed {seed} | {shown(found[-1:], asked.test)}", flush=True)
        print(f"{spec} | mean of {len(found)} | {shown(found, asked.test)}", flush=True)


if __name__ == "__main__":
    main()
