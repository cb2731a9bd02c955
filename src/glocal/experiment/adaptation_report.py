"""What adaptation changed, client by client, against what there was before."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from glocal.core.padding import IGNORED
from glocal.data.federation import Federation
from glocal.evaluation.communication import BYTES
from glocal.evaluation.intervals import nan_mean, paired
from glocal.evaluation.summary import Table, against, client_table, summarise
from glocal.evaluation.trials import Trial
from glocal.experiment.adapted_clients import Adapted

COUNTS = ("better_off", "worse_off", "same", "undecided")


def add_adapted(
    rows: Table,
    summary: dict[str, Any],
    trials: Sequence[Trial],
    repeats: Sequence[Adapted],
    same: float | None = None,
) -> None:
    """What adaptation changed, beside what there was: ``adapted_…`` in rows and summary.

    About the same are clients whose interval lies within ``same`` of 0.
    """
    changed = [replace(t, outcome=a.outcome) for t, a in zip(trials, repeats, strict=True)]
    new = client_table(changed, same)
    figures = summarise(new, changed)
    for k, (row, now) in enumerate(zip(rows, new, strict=True)):
        changes = ("accuracy", "value", "benefit", "estimate", "low", "high", "verdict")
        row |= {f"adapted_{name}": now[name] for name in changes if name in now}
        row["adapted_by"] = repeats[0].by[k]
        row["complexity"] = complexity(trials[0].fed, k)
    spread = ("mean", "worst10", "best10", "gini", "gap", "benefit")
    summary |= {f"adapted_{name}": figures[name] for name in (*spread, *COUNTS)}
    summary["adapted"] = {
        "gain": against(figures, summary),
        "by": dict(Counter(name for a in repeats for name in a.by)),
        **{name: figures[name] for name in ("accuracies", "values") if name in figures},
        "techniques": _by_technique(trials, repeats, same),
        "gradient_evaluations": round(nan_mean(a.gradients for a in repeats)),
        "params_up": repeats[0].sent,
        "params_down": repeats[0].sent,
        "bytes_up": BYTES * repeats[0].sent,
        "bytes_down": BYTES * repeats[0].sent,
        "worse_off_in_each": _counted(worse_off_in_each(trials), worse_off_in_each(changed)),
    }


def complexity(fed: Federation, k: int) -> float:
    """How varied a client's data is: the entropy of its training labels' shares, in bits.

    Of numbers, their standard deviation in training data over that of all clients.
    """
    if not fed.target.classes:
        return float(fed.y[fed.train.of(k)].std(unbiased=False))
    labels = fed.y[fed.train.of(k)].flatten()
    shares = torch.bincount(labels[labels != IGNORED], minlength=fed.classes).double()
    return float(torch.special.entr(shares / shares.sum()).sum() / math.log(2))


def _by_technique(
    trials: Sequence[Trial], repeats: Sequence[Adapted], same: float | None
) -> dict[str, Any]:
    """Each technique for everybody: every client's accuracy in every repeat, and the mean."""
    figures_of = {}
    for name in repeats[0].techniques:
        by_it = [
            replace(t, outcome=a.techniques[name]) for t, a in zip(trials, repeats, strict=True)
        ]
        figures = summarise(client_table(by_it, same), by_it)
        kept = ("mean", *COUNTS, "accuracies")
        figures_of[name] = {key: figures[key] for key in kept if key in figures}
    return figures_of


def _counted(before: list[int], after: list[int]) -> dict[str, Any]:
    """Counts of each repeat, and Student's interval of their change where there are three."""
    pairs = torch.tensor(after, dtype=torch.float64) - torch.tensor(before)
    by = "repeats" if len(pairs) > 2 else None
    return {"before": before, "after": after, "change": paired(pairs, by)}


def worse_off_in_each(trials: Sequence[Trial]) -> list[int]:
    """How many clients are worse off than alone, by the verdicts of each repeat by itself."""
    return [client_table([t])["verdict"].count("worse off") for t in trials]
