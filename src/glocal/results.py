"""Who is better off than alone, by how much, and who is not: a row for each client, and a summary.

Two estimates of a client's accuracy, both against its own yardstick on the same examples. *Own*:
the client's own test split. *Pooled*: all clients' test examples, weighted by the client's label
shares, which has far more power and is valid where clients differ in their labels alone. The
pooled one is used where it is valid, and the own one is given beside it. Repeats pool over splits
and seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glocal import metrics, verdict
from glocal.data.federation import Federation
from glocal.evaluate import Outcome
from glocal.ledger import Ledger
from glocal.verdict import Verdict


class Table(list[dict[str, Any]]):
    """Rows as dicts; ``table["accuracy"]`` is that column as a list."""

    def __getitem__(self, index: Any) -> Any:
        """A row by number, a column by name."""
        if isinstance(index, str):
            return [row[index] for row in self]
        return super().__getitem__(index)

    def __repr__(self) -> str:
        """Columns under their names, as text."""
        if not self:
            return "(no rows)"
        names = list(self[0])
        cells = [names, *([_cell(row[n]) for n in names] for row in self)]
        widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
        return "\n".join(
            "  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in cells
        )


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Trial:
    """One repeat: a federation's split, what a method did on it, and what each client did alone."""

    fed: Federation
    outcome: Outcome
    alone: Outcome
    ledger: Ledger


def pool_is_valid(fed: Federation) -> bool:
    """Whether other clients' test examples can judge a client: only labels differ."""
    return fed.label_shift_only and fed.y.dim() == 1


def client_table(trials: Sequence[Trial]) -> Table:
    """One row for each client."""
    pooled = pool_is_valid(trials[0].fed)
    weights = [_weights(t.fed) for t in trials] if pooled else []
    rows = Table()
    fed = trials[0].fed
    counts = [s.counts().tolist() for s in (fed.train, fed.val, fed.test)]
    for k, name in enumerate(fed.names):
        own = verdict.pool(
            [(t.fed.test.of(k), t.outcome.own[k], t.alone.own[k], None) for t in trials]
        )
        accuracy = _mean(float(t.outcome.own[k].mean()) for t in trials)
        local_accuracy = _mean(float(t.alone.own[k].mean()) for t in trials)
        row: dict[str, Any] = {
            "client": name,
            "n_train": counts[0][k],
            "n_val": counts[1][k],
            "n_test": counts[2][k],
        }
        if pooled:
            judged = verdict.pool(
                [
                    (t.fed.test.rows, _pool(t.outcome)[k], _pool(t.alone)[k], weights[r][k])
                    for r, t in enumerate(trials)
                ]
            )
            row["accuracy"] = _mean(
                float(_pool(t.outcome)[k].double() @ weights[r][k]) for r, t in enumerate(trials)
            )
            row["local_accuracy"] = _mean(
                float(_pool(t.alone)[k].double() @ weights[r][k]) for r, t in enumerate(trials)
            )
            row |= _fields(judged)
            row["own_accuracy"], row["own_local_accuracy"] = accuracy, local_accuracy
            row |= _fields(own, "own_")
        else:
            row["accuracy"], row["local_accuracy"] = accuracy, local_accuracy
            row |= _fields(own)
        for metric in trials[0].outcome.metrics:
            if metric != "accuracy":
                row[metric] = _mean(t.outcome.metrics[metric][k] for t in trials)
        row["model"] = trials[0].outcome.chosen[k]
        rows.append(row)
    return rows


def accuracies(trial: Trial) -> list[float]:
    """Each client's accuracy in one repeat, by the estimate in force."""
    if not pool_is_valid(trial.fed):
        return [float(own.mean()) for own in trial.outcome.own]
    return [float(x) for x in (_pool(trial.outcome).double() * _weights(trial.fed)).sum(1)]


def against(run: dict[str, Any], other: dict[str, Any], level: float = 0.90) -> dict[str, Any]:
    """How far one method's mean accuracy is above another's, with Student's paired interval.

    ``run`` and ``other`` are summaries on the same repeats, or, of a single one, on the same
    clients: the pairs are repeats where there are three or more, else clients.
    """
    from scipy import stats

    by = "repeats" if len(run["accuracies"]) > 2 else "clients"
    table, base = (torch.tensor(s["accuracies"]) for s in (run, other))
    pairs = (table - base).mean(1 if by == "repeats" else 0)
    center = float(pairs.mean())
    half = float(stats.t.ppf(0.5 + level / 2, len(pairs) - 1) * pairs.std() / len(pairs) ** 0.5)
    return {"difference": center, "low": center - half, "high": center + half, "by": by}


def summarise(rows: Table, trials: Sequence[Trial]) -> dict[str, Any]:
    """The federation's figures; fairness figures are over clients, of their accuracy."""
    n = rows["n_test"]
    spread = metrics.fairness(rows["accuracy"], n)
    verdicts, benefits = rows["verdict"], rows["benefit"]
    pooled = pool_is_valid(trials[0].fed)
    summary: dict[str, Any] = {
        **{k: spread[k] for k in ("mean", "worst10", "best10", "gini", "gap", "mean_examples")},
        "local_mean": _mean(rows["local_accuracy"]),
        "benefit": _mean(benefits),
        "better_off": verdicts.count("better off"),
        "worse_off": verdicts.count("worse off"),
        "undecided": verdicts.count("undecided"),
        "above": sum(b > 1e-12 for b in benefits),
        "below": sum(b < -1e-12 for b in benefits),
        "ties": sum(abs(b) <= 1e-12 for b in benefits),
        "clients": len(rows),
        "repeats": len(trials),
        "estimate": "pooled" if pooled else "own",
        "params_up": round(_mean(t.ledger.params_up for t in trials)),
        "params_down": round(_mean(t.ledger.params_down for t in trials)),
        "traffic": {"up": trials[0].ledger.by_set("up"), "down": trials[0].ledger.by_set("down")},
        "epsilon": None,
    }
    summary["accuracies"] = [accuracies(t) for t in trials]
    if pooled:
        own = rows["own_verdict"]
        summary["own"] = {
            "mean": _mean(rows["own_accuracy"]),
            "local_mean": _mean(rows["own_local_accuracy"]),
            "better_off": own.count("better off"),
            "worse_off": own.count("worse off"),
            "undecided": own.count("undecided"),
        }
    summary["metrics"] = {
        name: metrics.fairness(rows[name], n, lower_is_better=metrics.METRICS[name].lower_is_better)
        for name in trials[0].outcome.metrics
        if name != "accuracy"
    }
    return summary


def _weights(fed: Federation) -> Tensor:
    """[clients, pooled examples]: what each pooled test example counts for, for each client."""
    y = fed.y[fed.test.rows].cpu()
    shares = [
        torch.bincount(fed.y[fed.train.of(k)], minlength=fed.classes).cpu() for k in range(len(fed))
    ]
    return torch.stack([verdict.pool_weights(y, s) for s in shares])


def _pool(outcome: Outcome) -> Tensor:
    if outcome.pool is None:
        raise RuntimeError("the pooled test set was not examined")
    return outcome.pool


def _fields(judged: Verdict, prefix: str = "") -> dict[str, Any]:
    return {
        f"{prefix}benefit": judged.benefit,
        f"{prefix}low": judged.low,
        f"{prefix}high": judged.high,
        f"{prefix}verdict": judged.verdict,
    }


def _mean(values: Any) -> float:
    found = [float(v) for v in values]
    live = [v for v in found if not math.isnan(v)]
    return sum(live) / len(live) if live else math.nan
