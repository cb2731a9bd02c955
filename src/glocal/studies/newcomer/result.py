"""What came of a client that joined: rows for its stages, rows for the old clients, a summary.

A change is judged as a benefit is (:mod:`glocal.evaluation.paired_test`): the newcomer's against
its yardstick, an old client's against what it had before, both on the same test examples.
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
from glocal.evaluation.summary import Table, Trial, accuracies, client_table, pool_is_valid
from glocal.experiment.repeat import Trained
from glocal.studies.newcomer.arrival import Parts

STAGES = ("at once", "own training", "joined")
LEVEL = 0.90


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


def collect(
    found: Sequence[Seen],
    *,
    method: str,
    client: str,
    settings: dict[str, Any],
    data: dict[str, Any],
) -> Joined:
    """The result of several seeds."""
    clients = _clients(found)
    rows = _rows(found, clients)
    return Joined(
        method=method,
        client=client,
        rows=rows,
        clients=clients,
        summary=_summary(rows, clients, found),
        settings=settings,
        data=data,
        before=found[0].before,
        after=found[0].after,
    )


def _clients(found: Sequence[Seen]) -> Table:
    """A row an old client: "alone" of the verdict's table is what it had before."""
    names = {"accuracy": "after", "local_accuracy": "before", "benefit": "change"}
    kept = ("client", "n_train", "n_test", "low", "high", "verdict")
    rows = Table()
    for row in client_table([s.old_trial() for s in found]):
        judged: dict[str, Any] = {k: row[k] for k in kept[:3]}
        for prefix in ("", "own_"):
            for key in ("local_accuracy", "accuracy", "benefit", *kept[3:]):
                if prefix + key in row:
                    judged[prefix + names.get(key, key)] = row[prefix + key]
        rows.append(judged)
    return rows


def _rows(found: Sequence[Seen], clients: Table) -> Table:
    """A row a stage, and the newcomer alone."""
    pooled = pool_is_valid(found[0].parts.old)
    own = "own_" if pooled else ""
    rows = Table()
    for stage in STAGES:
        (row,) = client_table([s.newcomer_trial(stage) for s in found])
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
    nothing = {"benefit": 0.0, "low": 0.0, "high": 0.0, "verdict": "yardstick"}
    rows.append(
        {"stage": "alone", "accuracy": alone, **nothing, "old_own": None, "old_pooled": None}
    )
    return rows


def _summary(rows: Table, clients: Table, found: Sequence[Seen]) -> dict[str, Any]:
    stages = {row["stage"]: row for row in rows}
    by_seed = [s.change() for s in found]
    _, low, high = student(by_seed, LEVEL)
    every = paired_test.compare_repeats([_everybody(s) for s in found], LEVEL)
    verdicts = clients["verdict"]
    return {
        "at_once": stages["at once"]["accuracy"],
        "alone": stages["alone"]["accuracy"],
        "own_training": stages["own training"]["accuracy"],
        "joined": stages["joined"]["accuracy"],
        "benefit": stages["joined"]["benefit"],
        "verdict": stages["joined"]["verdict"],
        "old_before": fmean(clients["before"]),
        "old_after": fmean(clients["after"]),
        "old_change": fmean(clients["change"]),
        "old_low": low,
        "old_high": high,
        "old_by_seed": by_seed,
        "old_paired": {"change": every.benefit, "low": every.low, "high": every.high},
        "old_better_off": verdicts.count("better off"),
        "old_worse_off": verdicts.count("worse off"),
        "old_undecided": verdicts.count("undecided"),
        "old_clients": len(clients),
        "estimate": "pooled" if pool_is_valid(found[0].parts.old) else "own",
        "params_down": round(fmean(s.traffic.params_down for s in found)),
        "params_up": round(fmean(s.traffic.params_up for s in found)),
        "seeds": len(found),
    }


def _everybody(s: Seen) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All old clients' own test examples as one test, in which every client counts alike."""
    n = s.parts.old.test.counts().cpu()
    weight = torch.repeat_interleave(1.0 / n.double(), n)
    after, before = (torch.cat(s.old[when].own) for when in ("after", "before"))
    return s.parts.old.test.rows, after, before, weight
