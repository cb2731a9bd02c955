"""What training in less precision costs: CIFAR-10 among 100 clients, a CNN, three seeds.

python benchmarks/precisions.py --device cuda                    all three precisions, 200 rounds
python benchmarks/precisions.py --device cuda --only tf32 --json tf32.json       one, kept in a file
python benchmarks/precisions.py --from single.json tf32.json bf16.json           the table of these
python benchmarks/precisions.py --data digits --rounds 3 --sampled 2 --model lenet --clients 5

FedAvg with ten clients a round, each on a share of classes by Dirichlet(0.5); the accuracy is the
mean over clients of the last model on their own test examples. Seeds differ in the partition, the
initial model and all draws, and are the same in all precisions, so differences are paired: the
interval is Student's, of the difference's mean over seeds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch

import glocal
from glocal.evaluation.distributions import t_quantile
from glocal.nn.precision import PRECISIONS

LEVEL = 0.9


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", choices=[*PRECISIONS], help="this precision alone")
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--model", default="cnn")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--sampled", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--json", type=Path, help="write what was found to this file")
    parser.add_argument(
        "--from", nargs="+", type=Path, dest="files", help="files that --json wrote"
    )
    options = parser.parse_args()
    if options.files:
        parts = [json.loads(file.read_text()) for file in options.files]
        found = {name: each for part in parts for name, each in part.items()}
    else:
        names = [options.only] if options.only else [*PRECISIONS]
        found = {name: trained(name, options) for name in names}
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    print("\n".join(table(found)))


def trained(precision: str, options: Any) -> dict[str, Any]:
    """Accuracies by seed, and what it took."""
    accuracies, engines = [], []
    began = time.time()
    for seed in options.seeds:
        fed = glocal.load(
            options.data, clients=options.clients, partition="dirichlet(0.5)", seed=seed
        )
        run = glocal.fit(
            "fedavg(epochs=2, batch_size=20, lr=0.05)",
            fed,
            model=options.model,
            rounds=options.rounds,
            sampled=options.sampled,
            baseline="none",
            seed=seed,
            precision=precision,
            device=options.device,
            engine="compiled" if options.device.startswith("cuda") else "auto",
            progress=False,
        )
        accuracies.append(100 * float(run.summary["mean"]))
        engines.append(run.settings["engine"])
        print(f"{precision}, seed {seed}: {accuracies[-1]:.2f} % ({engines[-1]})", flush=True)
    card = torch.cuda.get_device_name() if options.device.startswith("cuda") else "cpu"
    seconds = (time.time() - began) / len(options.seeds)
    return {
        "accuracy": accuracies,
        "engine": engines,
        "seconds": seconds,
        "on": f"{card}, torch {torch.__version__}",
        "settings": {k: str(v) for k, v in vars(options).items() if k not in ("json", "files")},
    }


def table(found: dict[str, dict[str, Any]]) -> list[str]:
    """A row for each precision, with its difference from single."""
    rows = [
        "| precision | accuracy by seed, % | mean | less single, 90 % interval | s a run |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, one in found.items():
        each = one["accuracy"]
        apart = "–"
        if name != "single" and "single" in found:
            apart = difference(each, found["single"]["accuracy"])
        cells = ", ".join(f"{a:.2f}" for a in each)
        rows.append(
            f"| {name} | {cells} | {statistics.mean(each):.2f} | {apart} | {one['seconds']:.0f} |"
        )
    return rows


def difference(these: list[float], those: list[float]) -> str:
    """The mean difference and its interval."""
    apart = [a - b for a, b in zip(these, those, strict=True)]
    mean = statistics.mean(apart)
    if len(apart) < 2:
        return f"{mean:+.2f}"
    free = len(apart) - 1
    half = float(t_quantile((1 + LEVEL) / 2, free)) * statistics.stdev(apart) / len(apart) ** 0.5
    return f"{mean:+.2f} [{mean - half:+.2f}, {mean + half:+.2f}]"


if __name__ == "__main__":
    main()
