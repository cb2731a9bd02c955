"""Does a comparison hold on other partitions? One repeat on each of several seeds of everything.

``glocal compare --repeats`` redraws splits and initialisations of one partition; this redraws who
has which data as well. Prints, for each method, the points above the first one with Student's
paired 90 % interval over seeds.

    python benchmarks/partitions.py --seeds 5 --partition 'classes(2)' fedavg fedper ditto
"""

from __future__ import annotations

import argparse
import sys

import torch
from scipy import stats

from glocal.experiment.config import Config
from glocal.experiment.fit import train_all
from glocal.report.tables import table

PERSONAL = [
    "fedavg",
    "fedper",
    "fedrep",
    "lg-fedavg",
    "apfl",
    "pfedme",
    "ditto",
    "mtl",
    "superfed-mm",
    "superfed-lm",
    "scaffold",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("methods", nargs="*", default=PERSONAL)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--partition", default="classes(2)")
    parser.add_argument("--rounds", type=int, default=50)
    asked = parser.parse_args()
    means: dict[str, list[float]] = {spec: [] for spec in asked.methods}
    for seed in range(asked.seeds):
        print(f"seed {seed}", file=sys.stderr)
        settings = Config(partition=asked.partition, rounds=asked.rounds, seed=seed)
        for spec, run in train_all(asked.methods, settings, settings.federation()):
            means[spec].append(run.summary["mean"])
    base = torch.tensor(means[asked.methods[0]])
    rows = []
    for spec, values in means.items():
        pairs = 100 * (torch.tensor(values) - base)
        n = len(pairs)
        half = float(stats.t.ppf(0.95, n - 1) * pairs.std() / n**0.5) if n > 1 else float("nan")
        mean = float(pairs.mean())
        interval = f"{mean:+.1f} ({mean - half:+.1f} … {mean + half:+.1f})"
        each = " ".join(f"{100 * v:.1f}" for v in values)
        rows.append([spec, f"{100 * sum(values) / n:.1f}", interval, each])
    print(f"digits, {asked.partition}, {asked.rounds} rounds, seeds 0 to {asked.seeds - 1}\n")
    table(["method", "mean %", f"vs {asked.methods[0]}", "each seed"], rows)


if __name__ == "__main__":
    main()
