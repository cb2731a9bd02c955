"""Compressed updates: bytes up and accuracy, with error feedback and without.

    python benchmarks/compression.py             digits, 20 clients, all of them in 50 rounds
    python benchmarks/compression.py mnist       MNIST, 10 of 100 clients in 100 rounds
    python benchmarks/compression.py mnist --keep     and in compression-mnist.txt beside this

Every setting is trained in the same repeats: the same splits, first models and batches. Of each
kind, of those settings that send a tenth of the bytes or less, the one with the best mean
validation accuracy is chosen (marked *); test accuracies are shown of all, and choose nothing.
Differences are paired over repeats, with their standard errors, in points.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import glocal

TRIED = {
    "top-k": ["top-k(0.06{})", "top-k(0.03{})", "top-k(0.01{})"],
    "quantised, stochastic": ["quantised(3)", "quantised(2)"],
    "quantised, nearest": ["quantised(3,rounding=nearest{})", "quantised(2,rounding=nearest{})"],
    "low-rank": ["low-rank(4{})", "low-rank(2{})", "low-rank(1{})"],
}
"""Settings by kind; in the braces goes whether there is feedback."""

CASES: dict[str, dict[str, Any]] = {
    "digits": {"data": ("digits", 20), "base": "fedavg", "model": "mlp", "rounds": 50},
    "mnist": {
        "data": ("mnist", 100),
        "base": "fedavg(lr=0.05,momentum=0.5,epochs=1,batch_size=10)",
        "model": "mlp(200)",
        "rounds": 100,
        "sampled": 10,
        "tried": {"low-rank": ["low-rank(12{})", "low-rank(4{})", "low-rank(2{})"]},
    },
}


@dataclass(frozen=True)
class Trained:
    """What came of one setting."""

    spec: str
    bytes_up: int
    validation: list[float]
    test: list[float]

    @classmethod
    def of(cls, spec: str, fed: glocal.Federation, given: dict[str, Any]) -> Trained:
        """Trained in all repeats."""
        run = glocal.fit(spec, fed, baseline="none", **given)
        validation = [float(repeat.val_score.double().nanmean()) for repeat in run.repeats]
        test = [statistics.fmean(each) for each in run.summary["accuracies"]]
        return cls(spec, run.summary["bytes_up"], validation, test)


def percent(shares: list[float]) -> str:
    """Their mean."""
    return f"{100 * statistics.fmean(shares):6.2f}"


def difference(a: Trained, b: Trained) -> str:
    """By how many points a is better than b on test data, over repeats."""
    each = [100 * (x - y) for x, y in zip(a.test, b.test, strict=True)]
    error = statistics.stdev(each) / len(each) ** 0.5 if len(each) > 1 else float("nan")
    return f"{statistics.fmean(each):+6.2f} ± {error:.2f}"


def measured(case: str, repeats: int, device: str, kinds: list[str]) -> list[str]:
    """A line for each setting of these kinds."""
    given = {**CASES[case], "repeats": repeats, "device": device}
    (name, clients), base, own = given.pop("data"), given.pop("base"), given.pop("tried", {})
    fed = glocal.load(name, clients=clients, partition="dirichlet(0.3)", seed=0)
    plain = Trained.of(base, fed, given)
    lines = [
        f"{case}: {base}, {clients} clients, dirichlet(0.3), {given['model']}, {given['rounds']} "
        f"rounds of {given.get('sampled', 'all')}, {repeats} repeats",
        f"  {'':34} {'MB up':>8} {'fewer':>6}  {'val %':>6} {'test %':>6}  {'vs plain':>13}  "
        f"{'test % without, and by how much feedback is better'}",
        f"  {'plain':34} {plain.bytes_up / 1e6:8.2f} {'1.0':>6}  "
        f"{percent(plain.validation)} {percent(plain.test)}",
    ]
    for specs in ((TRIED | own)[kind] for kind in kinds):
        pairs = []
        for spec in specs:
            kept = Trained.of(f"{base}+{spec.format('')}", fed, given)
            forgot = None
            if "{}" in spec:
                forgot = Trained.of(f"{base}+{spec.format(',feedback=false')}", fed, given)
            pairs.append((spec.format(""), kept, forgot))
        enough = [one for _, one, _ in pairs if 10 * one.bytes_up <= plain.bytes_up]
        chosen = max(enough, key=lambda one: statistics.fmean(one.validation), default=None)
        for spec, one, forgot in pairs:
            without = ""
            if forgot is not None:
                without = f"{percent(forgot.test)}   {difference(one, forgot)}"
            lines.append(
                f"{'*' if one is chosen else ' '} {spec:34} {one.bytes_up / 1e6:8.2f} "
                f"{plain.bytes_up / one.bytes_up:6.1f}  "
                f"{percent(one.validation)} {percent(one.test)}  {difference(one, plain)}  "
                f"{without}".rstrip()
            )
            print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Measure one case and print it."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("case", nargs="?", default="digits", choices=sorted(CASES))
    asked.add_argument("--repeats", type=int, default=5)
    asked.add_argument("--device", default="cpu")
    asked.add_argument("--kinds", nargs="+", default=list(TRIED), choices=list(TRIED))
    asked.add_argument("--keep", action="store_true")
    given = asked.parse_args()
    began = time.perf_counter()
    lines = measured(given.case, given.repeats, given.device, given.kinds)
    took = time.perf_counter() - began
    where = f"{platform.machine()}, torch {torch.__version__}, {given.device}, {took:.0f} s"
    text = "\n".join([*lines, where]) + "\n"
    print(text)
    if given.keep:
        Path(__file__).with_name(f"compression-{given.case}.txt").write_text(text)


if __name__ == "__main__":
    main()
