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

from glocal.core.errors import GlocalError, unknown
from glocal.data.federation import Federation
from glocal.evaluation import metrics, paired_test
from glocal.evaluation.communication import Traffic
from glocal.evaluation.evaluate import Outcome
from glocal.evaluation.paired_test import Verdict


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
    baseline: Outcome
    traffic: Traffic


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
        own = paired_test.compare_repeats(
            [(t.fed.test.of(k), t.outcome.own[k], t.baseline.own[k], None) for t in trials]
        )
        accuracy = _mean(float(t.outcome.own[k].mean()) for t in trials)
        local_accuracy = _mean(float(t.baseline.own[k].mean()) for t in trials)
        row: dict[str, Any] = {
            "client": name,
            "n_train": counts[0][k],
            "n_val": counts[1][k],
            "n_test": counts[2][k],
        }
        if pooled:
            judged = paired_test.compare_repeats(
                [
                    (t.fed.test.rows, _pool(t.outcome)[k], _pool(t.baseline)[k], weights[r][k])
                    for r, t in enumerate(trials)
                ]
            )
            row["accuracy"] = _mean(
                float(_pool(t.outcome)[k].double() @ weights[r][k]) for r, t in enumerate(trials)
            )
            row["local_accuracy"] = _mean(
                float(_pool(t.baseline)[k].double() @ weights[r][k]) for r, t in enumerate(trials)
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
    by = "repeats" if len(run["accuracies"]) > 2 else "clients"
    table, base = (torch.tensor(s["accuracies"]) for s in (run, other))
    pairs = (table - base).mean(1 if by == "repeats" else 0)
    center = float(pairs.mean())
    half = _half(pairs, level)
    return {"difference": center, "low": center - half, "high": center + half, "by": by}


FIGURES = ("mean", "worst10", "best10", "gini", "gap")


def fairness_against(
    summary: dict[str, Any],
    base_summary: dict[str, Any],
    metric: str = "accuracy",
    level: float = 0.90,
) -> dict[str, Any]:
    """The fairness figures of one method, and how far each is from another method's.

    Every figure (:func:`glocal.evaluation.metrics.fairness`) is taken over the clients of each
    repeat by itself, and then averaged over repeats. The ``worst10`` of a summary is another: it
    takes each client's mean over repeats first, which evens out chance, and so is never the worse
    of the two.

    Args:
        summary: of the method.
        base_summary: of the other, on the same repeats and clients.
        metric: any in ``summary["values"]``.
        level: of the intervals.

    Returns:
        ``metric``, ``repeats`` and, for each of mean, worst10, best10, gini (×100) and gap, a dict:
        its ``value``, the ``values`` of the repeats, the ``difference`` from the other method, and
        ``low`` and ``high``, Student's interval of that difference ``by`` repeats, paired. That
        needs three of them. With fewer, the mean is paired by clients (as in :func:`against`), and
        what is a figure of all clients together has no pairs: its ends, and ``by``, are None.
    """
    table, base = _values(summary, metric), _values(base_summary, metric)
    if table.shape != base.shape:
        raise GlocalError(
            f"{_size(table)} cannot be paired with {_size(base)}: give both methods the same."
        )
    lower = metrics.METRICS[metric].lower_is_better
    mine, others = (
        [metrics.fairness(row, lower_is_better=lower) for row in t.tolist()] for t in (table, base)
    )
    found: dict[str, Any] = {"metric": metric, "repeats": len(table)}
    for figure in FIGURES:
        values = [m[figure] for m in mine]
        pairs = _live([m[figure] - o[figure] for m, o in zip(mine, others, strict=True)])
        by = "repeats" if len(pairs) > 2 else "clients" if figure == "mean" else None
        if by == "clients":
            pairs = _live((table - base).nanmean(0).tolist())
        found[figure] = {"value": _mean(values), "values": values, **paired(pairs, level, by)}
    return found


def _values(summary: dict[str, Any], metric: str) -> Tensor:
    """[repeats, clients]; what JSON holds as null is NaN again."""
    if metric not in summary["values"]:
        raise unknown("metric", metric, summary["values"])
    rows = [[math.nan if v is None else v for v in row] for row in summary["values"][metric]]
    return torch.tensor(rows, dtype=torch.float64)


def _live(pairs: list[float]) -> Tensor:
    return torch.tensor([p for p in pairs if not math.isnan(p)], dtype=torch.float64)


def _size(table: Tensor) -> str:
    return f"{len(table)} repeats of {table.shape[1]} clients"


def paired(pairs: Tensor, level: float, by: str | None) -> dict[str, Any]:
    """The mean of paired differences, and its interval where there is one."""
    center, half = _mean(pairs), _half(pairs, level)
    if by is None or math.isnan(half):
        return {"difference": center, "low": None, "high": None, "by": None}
    return {"difference": center, "low": center - half, "high": center + half, "by": by}


def _half(pairs: Tensor, level: float) -> float:
    """Half of Student's interval for the mean; NaN for a single pair, which has no spread."""
    from scipy import stats

    n = len(pairs)
    if n < 2:
        return math.nan
    return float(stats.t.ppf(0.5 + level / 2, n - 1) * pairs.std() / n**0.5)


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
        "params_up": round(_mean(t.traffic.params_up for t in trials)),
        "params_down": round(_mean(t.traffic.params_down for t in trials)),
        "traffic": {"up": trials[0].traffic.by_set("up"), "down": trials[0].traffic.by_set("down")},
        "epsilon": None,
    }
    summary["accuracies"] = [accuracies(t) for t in trials]
    summary["values"] = {
        name: summary["accuracies"]
        if name == "accuracy"
        else [list(t.outcome.metrics[name]) for t in trials]
        for name in trials[0].outcome.metrics
    }
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
    return torch.stack([paired_test.pool_weights(y, _labels(fed, k, y)) for k in range(len(fed))])


def _labels(fed: Federation, k: int, pool: Tensor) -> Tensor:
    """How many of each class a client trains on.

    Of a client so small that none of these is in the pool, all its labels are counted: its own test
    examples are in the pool, so that it can always be judged.
    """
    counts = torch.bincount(fed.y[fed.train.of(k)], minlength=fed.classes).cpu()
    if counts[pool].any():
        return counts
    whole = torch.cat([fed.train.of(k), fed.val.of(k), fed.test.of(k)])
    return torch.bincount(fed.y[whole], minlength=fed.classes).cpu()


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
