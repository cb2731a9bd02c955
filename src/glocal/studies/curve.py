"""A family of models from one end (0) to the other (1), evaluated on a grid of points between.

Each client picks its point on its own validation data, which is little; so beside that there is one
point for everybody, picked on the mean of all clients' validation accuracies. What it would have
been had clients picked on their test data is given under that name only, since published figures
were made so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean as mean
from typing import Any

from torch import Tensor

from glocal.core.errors import GlocalError
from glocal.data.federation import Federation
from glocal.studies.repeats import interval
from glocal.studies.scoring import Examples, Scores, best, own, scores, tested

GRID = tuple(i / 10 for i in range(11))

SHOWN = ("accuracy", "loss", "ece")


def check_grid(grid: Sequence[float], name: str) -> tuple[float, ...]:
    """The points in order, once each."""
    outside = [g for g in grid if not 0 <= g <= 1]
    if outside:
        raise GlocalError(f"{name} must be from 0 to 1, not {outside[0]:g}.")
    if not grid:
        raise GlocalError(f"give at least one {name} to look at.")
    return tuple(sorted(set(grid)))


def along(
    logits: Callable[[float, Examples], Tensor], fed: Federation, grid: Sequence[float]
) -> dict[str, Any]:
    """One repeat's curve: each metric's mean over clients, and every client's pick."""
    val, test = own(fed, fed.val), tested(fed)
    on_val = [scores(logits(g, val), fed, val) for g in grid]
    on_test = [scores(logits(g, test), fed, test) for g in grid]
    picks = best(on_val)
    clients = range(len(picks))
    (common,) = best([{m: [mean(s[m])] for m in SHOWN} for s in on_val])
    return {
        "validation": _means(on_val),
        "test": _means(on_test),
        "picks": [grid[i] for i in picks],
        "picked": {m: mean([on_test[picks[k]][m][k] for k in clients]) for m in SHOWN},
        "common": grid[common],
        "commonly_picked": {m: mean(on_test[common][m]) for m in SHOWN},
        "test_picked": mean([max(s["accuracy"][k] for s in on_test) for k in clients]),
        "client_validation": [s["accuracy"] for s in on_val],
        "client_test": [s["accuracy"] for s in on_test],
    }


def _means(points: Sequence[Scores]) -> dict[str, list[float]]:
    return {m: [mean(s[m]) for s in points] for m in SHOWN}


def over_repeats(curves: Sequence[dict[str, Any]], grid: Sequence[float]) -> dict[str, Any]:
    """Intervals over repeats at every point; picks are counted over clients and repeats."""
    picks = [p for c in curves for p in c["picks"]]
    return {
        **{
            where: {
                m: [interval([c[where][m][i] for c in curves]) for i in range(len(grid))]
                for m in SHOWN
            }
            for where in ("validation", "test")
        },
        "picks": [picks.count(g) for g in grid],
        "picked": {m: interval([c["picked"][m] for c in curves]) for m in SHOWN},
        "commonly_picked": {m: interval([c["commonly_picked"][m] for c in curves]) for m in SHOWN},
        "test_picked": interval([c["test_picked"] for c in curves]),
        "by_repeat": [
            {k: c[k] for k in ("picks", "common", "client_validation", "client_test")}
            for c in curves
        ],
    }
