"""Auxiliary models on the clients' representations: do they help where a client has few labels?

    python benchmarks/auxiliary.py             digits, 40 clients with some 30 training examples
    python benchmarks/auxiliary.py mnist       MNIST, 40 clients with as few, 20 of them in a round
    python benchmarks/auxiliary.py mnist --keep     and in auxiliary-mnist.txt beside this

Every setting is trained in the same repeats: the same splits, first models and batches. Of each
auxiliary, the weight with the best mean validation accuracy is chosen (marked *), a weight of 0,
which is the plain method, among them; test accuracies are shown of all, and choose nothing.
Differences are paired over repeats, with their standard errors, in points.
"""

from __future__ import annotations

import argparse
import platform
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import glocal

WEIGHTS = (0.1, 0.3, 1.0)

AUXILIARIES = ("aux-head", "autoencoder", "rotation", "jigsaw")

PRETRAINED = (
    "pretrain(5)",
    "autoencoder(0.3)+pretrain(5)",
    "autoencoder(0.3)+pretrain(5,labels=false)",
    "rotation(0.1)+pretrain(5,labels=false)",
)
"""Pre-training, by itself and with auxiliaries."""

CASES: dict[str, dict[str, Any]] = {
    "digits": {
        "data": ("digits", 40),
        "base": "lg-fedavg(shared=last(1),warmup={})",
        "model": "mlp",
        "rounds": 30,
        "engine": "vectorised",
    },
    "mnist": {
        "data": ("mnist(examples=1800)", 40),
        "base": "lg-fedavg(shared=last(1),warmup={})",
        "model": "mlp(100, 64)",
        "rounds": 30,
        "sampled": 20,
        "engine": "vectorised",
    },
}


@dataclass(frozen=True)
class Trained:
    """What came of one setting, in each repeat."""

    spec: str
    validation: list[float]
    test: list[float]
    up: int
    """Parameters that were sent up."""

    @classmethod
    def of(cls, spec: str, fed: glocal.Federation, given: dict[str, Any]) -> Trained:
        """Trained in all repeats."""
        run = glocal.fit(spec, fed, baseline="none", **given)
        validation = [float(repeat.val_score.double().nanmean()) for repeat in run.repeats]
        test = [statistics.fmean(each) for each in run.summary["accuracies"]]
        return cls(spec, validation, test, run.summary["bytes_up"])


def line(mark: str, name: str, one: Trained, plain: Trained) -> str:
    """What is shown of a setting."""
    each = [100 * (x - y) for x, y in zip(one.test, plain.test, strict=True)]
    error = statistics.stdev(each) / len(each) ** 0.5
    versus = "" if one is plain else f"{statistics.fmean(each):+6.2f} ± {error:.2f}"
    shares = (f"{100 * statistics.fmean(part):6.2f}" for part in (one.validation, one.test))
    return f"{mark} {name:44} {'  '.join(shares)}  {versus}".rstrip()


def measured(case: str, warmup: float, repeats: int) -> list[str]:
    """A line for each setting."""
    given = {**CASES[case], "repeats": repeats}
    (name, clients), base = given.pop("data"), given.pop("base").format(f"{warmup:g}")
    fed = glocal.load(name, clients=clients, partition="dirichlet(0.3)", seed=0)
    plain = Trained.of(base, fed, given)
    lines = [
        f"{case}: {base}, {clients} clients, dirichlet(0.3), {fed.train.rows.numel()} training "
        f"examples, {given['model']}, {given['rounds']} rounds, {repeats} repeats",
        f"  {'':44} {'val %':>6}  {'test %':>6}  {'vs plain':>13}",
        line(" ", "plain", plain, plain),
    ]
    print("\n".join(lines), flush=True)
    for auxiliary in AUXILIARIES:
        tried = {w: Trained.of(f"{base}+{auxiliary}({w})", fed, given) for w in WEIGHTS}
        best = max([plain, *tried.values()], key=lambda one: statistics.fmean(one.validation))
        for weight, one in tried.items():
            assert one.up == plain.up, "an auxiliary was sent"
            mark = "*" if one is best else " "
            lines.append(line(mark, f"{auxiliary}({weight})", one, plain))
            print(lines[-1], flush=True)
    for spec in PRETRAINED:
        lines.append(line(" ", spec, Trained.of(f"{base}+{spec}", fed, given), plain))
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Measure one case and print it."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("case", nargs="?", default="digits", choices=sorted(CASES))
    asked.add_argument("--repeats", type=int, default=6)
    asked.add_argument("--warmups", type=float, nargs="+", default=[0.0, 0.5])
    asked.add_argument("--keep", action="store_true")
    given = asked.parse_args()
    lines = [row for w in given.warmups for row in [*measured(given.case, w, given.repeats), ""]]
    text = "\n".join([*lines, f"{platform.machine()}, torch {torch.__version__}, cpu"]) + "\n"
    if given.keep:
        Path(__file__).with_name(f"auxiliary-{given.case}.txt").write_text(text)


if __name__ == "__main__":
    main()
