"""What came of a client that joined: rows for its stages, rows for the old clients, a summary.

A change is tested as a benefit is (:mod:`glocal.evaluation.paired_test`): the newcomer's against
its local baseline, an old client's against what it had before, both on the same test examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from glocal.evaluation import paired_test
from glocal.evaluation.communication import Traffic
from glocal.evaluation.evaluate import Outcome
from glocal.evaluation.intervals import student
from glocal.evaluation.summary import (
    Table,
    Trial,
    accuracies,
    client_table,
    pool_is_valid,
    verdict_counts,
)
from glocal.experiment.repeat import Trained
from glocal.studies.newcomer.arrival import Parts
from glocal.studies.repeats import LEVEL

STAGES = ("at once", "own training", "joined")


@dataclass(frozen=True)
class Joined:
    """What the newcomer got and what the old clients lost."""

    method: str
    client: str
    rows: Table
    """One row a stage: the newcomer's accuracy and verdict against alone, the old clients' mean."""
    clients: Table
    """One row an old client: ``before``, ``after``, ``change`` with its paired interval."""
    summary: dict[str, Any]
    settings: dict[str, Any]
    data: dict[str, Any]
    before: Trained = field(repr=False)
    """The old clients' training as it ended, of the first seed."""
    after: Trained = field(repr=False)
    """The same after the newcomer joined; the newcomer is the last client."""


@dataclass(frozen=True)
class Seen:
    """What was seen of one seed: every outcome, by stage."""

    parts: Parts
    newcomer: dict[str, Outcome]
    alone: Outcome
    old: dict[str, Outcome]
    traffic: Traffic
    before: Trained
    after: Trained

    def newcomer_trial(self, stage: str) -> Trial:
        """The newcomer at a stage, against what it could do alone."""
        return Trial(self.parts.new, self.newcomer[stage], self.alone, self.traffic)

    def old_trial(self) -> Trial:
        """The old clients after it joined, against what they had before."""
        return Trial(self.parts.old, self.old["after"], self.old["before"], self.traffic)

    def change(self) -> float:
        """The mean change over old clients."""
        before, after = (
            fmean(accuracies(Trial(self.parts.old, self.old[when], self.alone, self.traffic)))
            for when in ("before", "after")
        )
        return after - before


def tables(seen: Sequence[Seen]) -> dict[str, Any]:
    """The rows, the old clients and the summary of several seeds."""
    clients = _clients(seen)
    rows = _rows(seen, clients)
    return {"rows": rows, "clients": clients, "summary": _summary(rows, clients, seen)}


def _clients(seen: Sequence[Seen]) -> Table:
    """A row an old client: "alone" of the verdict's table is what it had before."""
    names = {"accuracy": "after", "local_accuracy": "before", "benefit": "change"}
    kept = ("client", "n_train", "n_test", "low", "high", "verdict")
    rows = Table()
    for row in client_table([s.old_trial() for s in seen]):
        changed: dict[str, Any] = {k: row[k] for k in kept[:3]}
        for prefix in ("", "own_"):
            for key in ("local_accuracy", "accuracy", "benefit", *kept[3:]):
                if prefix + key in row:
                    changed[prefix + names.get(key, key)] = row[prefix + key]
        rows.append(changed)
    return rows


def _rows(seen: Sequence[Seen], clients: Table) -> Table:
    """A row a stage, and the newcomer alone."""
    pooled = pool_is_valid(seen[0].parts.old)
    own = "own_" if pooled else ""
    rows = Table()
    for stage in STAGES:
        (row,) = client_table([s.newcomer_trial(stage) for s in seen])
        when = "after" if stage == "joined" else "before"
        rows.append(
            {
                "stage": stage,
                **{k: row[k] for k in ("accuracy", "benefit", "low", "high", "verdict")},
                "old_own": fmean(clients[f"{own}{when}"]),
                "old_pooled": fmean(clients[when]) if pooled else None,
            }
        )
    alone = row["local_accuracy"]
    nothing = {"benefit": 0.0, "low": 0.0, "high": 0.0, "verdict": "baseline"}
    rows.append(
        {"stage": "alone", "accuracy": alone, **nothing, "old_own": None, "old_pooled": None}
    )
    return rows


def _summary(rows: Table, clients: Table, seen: Sequence[Seen]) -> dict[str, Any]:
    stages = {row["stage"]: row for row in rows}
    by_seed = [s.change() for s in seen]
    _, low, high = student(by_seed, LEVEL)
    every = paired_test.compare_repeats([_everybody(s) for s in seen], LEVEL)
    reached = ("at once", "alone", "own training", "joined")
    return {
        **{stage.replace(" ", "_"): stages[stage]["accuracy"] for stage in reached},
        **{k: stages["joined"][k] for k in ("benefit", "verdict")},
        **{f"old_{k}": fmean(clients[k]) for k in ("before", "after", "change")},
        "old_low": low,
        "old_high": high,
        "old_by_seed": by_seed,
        "old_paired": {"change": every.benefit, "low": every.low, "high": every.high},
        **{f"old_{name}": n for name, n in verdict_counts(clients["verdict"]).items()},
        "old_clients": len(clients),
        "estimate": "pooled" if pool_is_valid(seen[0].parts.old) else "own",
        "params_down": round(fmean(s.traffic.params_down for s in seen)),
        "params_up": round(fmean(s.traffic.params_up for s in seen)),
        "seeds": len(seen),
    }


def _everybody(s: Seen) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All old clients' own test examples as one test, in which every client counts alike."""
    n = s.parts.old.test.counts().cpu()
    weight = torch.repeat_interleave(1.0 / n.double(), n)
    after, before = (torch.cat(s.old[when].own) for when in ("after", "before"))
    return s.parts.old.test.rows, after, before, weight
