"""Stragglers: FedAvg that drops them, FedAvg and FedProx that use what they did.

    python benchmarks/stragglers.py             digits, 10 of 50 clients in 60 rounds
    python benchmarks/stragglers.py --keep      and in stragglers.txt beside this

After Li et al., *Federated optimization in heterogeneous networks*, MLSys 2020, section 5.2: E = 20
epochs, and 0, 50 or 90 % of a round's clients do a part of them. Clients have two classes each. Of
FedProx the μ of 0.001, 0.01, 0.1 and 1 with the best mean validation accuracy is shown. Test
accuracies choose nothing. Differences are paired over repeats, with their standard errors, in
points.
"""

from __future__ import annotations

import argparse
import platform
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

import glocal

SHARES = (0.0, 0.5, 0.9)
MUS = (0.001, 0.01, 0.1, 1.0)
TRAINING = "epochs=20,lr=0.03"


@dataclass(frozen=True)
class Trained:
    """What came of one method, over repeats."""

    name: str
    validation: float
    test: list[float]
    loss: float
    """On training examples, after the last round."""
    swing: float
    """How much the validation accuracy changes from one evaluated round to the next, in the last
    half of the rounds: the mean of absolute differences."""

    @classmethod
    def of(cls, name: str, spec: str, fed: glocal.Federation, given: dict[str, Any]) -> Trained:
        """Trained in all repeats."""
        run = glocal.fit(spec, fed, baseline="none", **given)
        curves = [[line for line in r.history if "val_accuracy" in line] for r in run.repeats]
        late = [[x["val_accuracy"] for x in curve[len(curve) // 2 :]] for curve in curves]
        swings = [abs(a - b) for curve in late for a, b in pairwise(curve)]
        return cls(
            name,
            statistics.fmean(float(r.val_score.double().nanmean()) for r in run.repeats),
            [statistics.fmean(each) for each in run.summary["accuracies"]],
            statistics.fmean(curve[-1]["train_loss"] for curve in curves),
            statistics.fmean(swings),
        )


def line(share: float, found: Trained, base: Trained) -> str:
    """A row of the table."""
    each = [100 * (a - b) for a, b in zip(found.test, base.test, strict=True)]
    error = statistics.stdev(each) / len(each) ** 0.5 if len(each) > 1 else float("nan")
    against = "" if found is base else f"{statistics.fmean(each):+6.1f} ± {error:.1f}"
    return (
        f"{share:6.0%}  {found.name:24}{100 * statistics.fmean(found.test):8.1f}  {against:>14}"
        f"{found.loss:10.3f}{100 * found.swing:8.1f}"
    )


def measured(repeats: int, rounds: int) -> Iterator[str]:
    """The lines of the table."""
    fed = glocal.load("digits", clients=50, partition="classes(2)")
    how: dict[str, Any] = {"model": "logistic", "rounds": rounds, "sampled": 10, "repeats": repeats}
    how["engine"] = "vectorised"
    yield "slow    method                    test %    to dropping      loss   swing"
    for share in SHARES:
        drop = {**how, "stragglers": f"drop({share})"}
        use = {**how, "stragglers": f"use({share})"}
        base = Trained.of("fedavg, dropped", f"fedavg({TRAINING})", fed, drop)
        found = [base]
        if share:
            found.append(Trained.of("fedavg, used", f"fedavg({TRAINING})", fed, use))
        tried = [
            Trained.of(f"fedprox(mu={mu}), used", f"fedprox(mu={mu},{TRAINING})", fed, use)
            for mu in MUS
        ]
        found.append(max(tried, key=lambda each: each.validation))
        yield from (line(share, each, base) for each in found)


def main() -> None:
    """Print the table, and keep it if asked."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--keep", action="store_true")
    asked = parser.parse_args()
    head = (
        f"digits, classes(2), 10 of 50 clients in {asked.rounds} rounds, E = 20, lr 0.03, "
        f"logistic; {asked.repeats} repeats; torch {torch.__version__}, {platform.machine()}"
    )
    lines = [head, ""]
    print(head, flush=True)
    for each in measured(asked.repeats, asked.rounds):
        print(each, flush=True)
        lines.append(each)
    if asked.keep:
        Path(__file__).with_suffix(".txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
