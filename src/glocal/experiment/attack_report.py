"""What an attack did to the clients who are not part of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from glocal.data.federation import Federation
from glocal.evaluation import metrics
from glocal.evaluation.intervals import nan_mean
from glocal.evaluation.summary import Table, verdict_counts
from glocal.evaluation.trials import pool_is_valid


@dataclass(frozen=True)
class Struck:
    """What an attack came to in one repeat."""

    attack: str
    who: tuple[int, ...]
    """The malicious clients."""
    stopped: int | None
    """The round that could not be trained, as numbers were no longer finite."""
    success: list[float] | None
    """Of a backdoor: each client's share of stamped test images taken for the target."""


def add_attack(rows: Table, summary: dict[str, Any], found: Sequence[Struck]) -> None:
    """Mark the malicious clients' rows, and add the honest clients' figures to the summary."""
    who = set(found[0].who)
    for k, row in enumerate(rows):
        row["malicious"] = k in who
    summary["attack"] = {
        "spec": found[0].attack,
        "malicious": [row["client"] for row in rows if row["malicious"]],
        "stopped": [one.stopped for one in found],
    }
    summary["honest"] = honest_summary(rows, summary, who)
    rates = [one.success for one in found if one.success is not None]
    if rates:
        summary["honest"]["backdoor"] = nan_mean(
            rate for one in rates for k, rate in enumerate(one) if k not in who
        )


def honest_summary(
    rows: Table, summary: dict[str, Any], malicious: Collection[int]
) -> dict[str, Any]:
    """The federation's figures over the clients that are not malicious.

    Also of a run without an attack, as if those clients' results were not there: what an attack
    changed is then seen on the same clients.
    """
    left = [k for k in range(len(rows)) if k not in malicious]
    verdicts = [rows[k]["verdict"] for k in left]
    none = None in verdicts  # nobody is set against being alone
    spread = metrics.fairness([rows[k]["accuracy"] for k in left])
    accuracies = [[repeat[k] for k in left] for repeat in summary["accuracies"]]
    return {
        **{k: spread[k] for k in ("mean", "worst10")},
        **{name: None if none else n for name, n in verdict_counts(verdicts).items()},
        "clients": len(left),
        "accuracies": accuracies,
        "values": {"accuracy": accuracies},
    }


def chance(fed: Federation, malicious: Collection[int] = ()) -> float:
    """The best mean accuracy over honest clients of always giving the same answer.

    By the estimate in force: the pooled one weighs answers by the client's training label shares.
    """
    split = fed.train if pool_is_valid(fed) else fed.test
    shares = [
        torch.bincount(fed.y[split.of(k)].flatten(), minlength=fed.classes).double()
        for k in range(len(fed))
        if k not in malicious
    ]
    return float(torch.stack([s / s.sum() for s in shares]).mean(0).max())
