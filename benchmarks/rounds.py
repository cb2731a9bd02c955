"""Time a round of local training: a plain PyTorch loop, each engine, and what ``auto`` chooses.

python benchmarks/rounds.py --json out.json         the cases of ``glocal bench``
python benchmarks/rounds.py --rule                  what the rule behind ``auto`` rests on
python benchmarks/rounds.py --rule --compiled       and compiled (minutes for recurrent ones)
python benchmarks/rounds.py --convolutions --compiled     the same for convolutions
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from glocal.core.progress import reporter
from glocal.studies.bench import CASES, HEADER, Case, render, run_bench

RULE = (
    Case("64-32-10, 10", "mlp(32)", (64,), clients=10, examples=40, batch_size=10),
    Case("199k, 10", "mlp(200, 200)", (784,), clients=10, examples=100, batch_size=10),
    Case("199k, 50", "mlp(200, 200)", (784,), clients=50, examples=40, batch_size=10),
    Case("633k, 10", "mlp(512, 256, 256, 128)", (784,), clients=10, examples=60, batch_size=10),
    Case("633k, 50", "mlp(512, 256, 256, 128)", (784,), clients=50, examples=30, batch_size=10),
    Case("2M, 10", "mlp(1024, 1024, 256)", (784,), clients=10, examples=40, batch_size=10),
    Case("2M, 30", "mlp(1024, 1024, 256)", (784,), clients=30, examples=20, batch_size=10),
    Case("lstm 9k, 10", "char-lstm(hidden=32, layers=1)", (20,), 10, 40, 10, classes=80),
    Case("lstm 9k, 50", "char-lstm(hidden=32, layers=1)", (20,), 50, 20, 10, classes=80),
    Case("lstm 58k, 10", "char-lstm(hidden=64)", (20,), 10, 40, 10, classes=80),
    Case("lstm 820k, 10", "char-lstm", (20,), 10, 20, 10, classes=80),
)
"""Dense and recurrent models of growing size, in cohorts of 10 and more."""

CONVOLUTIONS = (
    Case("lenet, 10 × 5", "lenet", (3, 32, 32), clients=10, examples=40, batch_size=5),
    Case("lenet, 10 × 10", "lenet", (3, 32, 32), clients=10, examples=80, batch_size=10),
    Case("lenet, 10 × 20", "lenet", (3, 32, 32), clients=10, examples=160, batch_size=20),
    Case("lenet, 10 × 50", "lenet", (3, 32, 32), clients=10, examples=400, batch_size=50),
    Case("lenet, 50 × 10", "lenet", (3, 32, 32), clients=50, examples=40, batch_size=10),
    Case("lenet on 1×28×28, 10 × 10", "lenet", (1, 28, 28), 10, 80, 10),
    Case("resnet10(width=8), 10 × 10", "resnet10(width=8)", (3, 32, 32), 10, 20, 10),
    Case("cnn, 5 × 10", "cnn", (3, 32, 32), clients=5, examples=40, batch_size=10),
)
"""Convolutions in cohorts of clients × examples of a batch."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the result to this file")
    parser.add_argument("--repeats", type=int, default=7, help="timed rounds of each contestant")
    parser.add_argument("--rule", action="store_true", help="the cases behind the auto rule")
    parser.add_argument("--convolutions", action="store_true", help="its cases of convolutions")
    parser.add_argument("--only", nargs="+", help="names of the cases to run")
    parser.add_argument("--compiled", action="store_true", help="time compiled steps as well")
    options = parser.parse_args()
    groups = (RULE,) * options.rule + (CONVOLUTIONS,) * options.convolutions or (CASES,)
    cases = [
        case for group in groups for case in group if not options.only or case.name in options.only
    ]
    with reporter(None) as report:
        result = run_bench(
            repeats=options.repeats, cases=cases, progress=report, compiled=options.compiled
        )
    rows = [HEADER, *render(result)]
    if options.compiled:
        more = [("compiled ms", "its first round s")]
        for case in result["cases"]:
            more.append((f"{case['compiled_ms']:.1f}", f"{case['compiled_first_s']:.1f}"))
        rows = [row + new for row, new in zip(rows, more, strict=True)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
    print(", ".join(f"{k} {v}" for k, v in result["machine"].items()))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
