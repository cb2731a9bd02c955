"""How often verdicts in MAE are right, where the truth is known: 20 clients, 40 simulations each.

Two models' errors share what is hard about an example; the second's are larger by ``truth`` on
average, and with three repeats each training has luck of its own. Prints how often the interval
holds the truth (nominal: 90 %) and how many clients are called.

    python benchmarks/error_coverage.py
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import torch
from torch import Tensor

import glocal
from glocal.evaluation.evaluate import Outcome
from glocal.evaluation.summary import client_table
from glocal.evaluation.trials import Trial

CLIENTS, TIMES = 20, 40


def outcome(errors: list[Tensor]) -> Outcome:
    """One side's absolute errors of every client's test examples."""
    means = {"mae": [float(each.mean()) for each in errors]}
    return Outcome(means, errors, None, ["x"] * CLIENTS, "mae", errors, lower=True)


def simulated(truth: float, repeats: int, rows: int, draw: np.random.Generator) -> None:
    """Print a line."""
    said: Counter[str] = Counter()
    held, luck = 0, 0.05 if repeats > 1 else 0.0
    for seed in range(TIMES):
        x, y = np.zeros((CLIENTS * rows, 1), "float32"), draw.normal(size=CLIENTS * rows)
        clients = np.repeat(np.arange(CLIENTS), rows)
        fed = glocal.federation(x, y, clients, task="regression", split=(0.4, 0.2, 0.4), seed=seed)
        trials = []
        for r in range(repeats):
            fold = fed.fold(r)
            sides: tuple[list[Tensor], list[Tensor]] = ([], [])
            for k in range(CLIENTS):
                hard = draw.normal(size=len(fold.test.of(k)))
                for side, more in zip(sides, (0.0, truth), strict=True):
                    error = np.abs(hard + 0.6 * draw.normal(size=len(hard))) + more
                    side.append(torch.from_numpy(error + luck * draw.normal()))
            trials.append(Trial(fold, outcome(sides[0]), outcome(sides[1])))
        table = client_table(trials)
        said.update(table["verdict"])
        held += sum(row["low"] <= truth <= row["high"] for row in table)
    share = held / CLIENTS / TIMES
    calls = ", ".join(f"{word} {n}" for word, n in sorted(said.items()))
    print(
        f"truth {truth:.2f}, {repeats} repeats, {rows} rows: holds it {100 * share:.1f} %; {calls}"
    )


if __name__ == "__main__":
    generator = np.random.default_rng(0)
    for number in (1, 3):
        for gain in (0.0, 0.15):
            for size in (30, 100):
                simulated(gain, number, size, generator)
