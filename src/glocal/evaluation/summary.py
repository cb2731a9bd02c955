"""Who is better off than alone, and by how much: a row for each client, and a summary.

There are two estimates of a client's accuracy, both compared with its local baseline on the same
examples. The *own* estimate uses the client's own test split. The *pooled* estimate uses all
clients' test examples, weighted by the client's label shares; it has far more power, and is valid
where clients differ only in their labels. The pooled one is used where it is valid, and the own one
is given beside it. Verdicts pool over repeats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from glocal.core.errors import GlocalError, unknown
from glocal.data.federation import Federation
from glocal.evaluation import metrics, paired_test, pooling_test
from glocal.evaluation.communication import Traffic
from glocal.evaluation.evaluate import Outcome
from glocal.evaluation.intervals import nan_mean, paired, student, without_nan


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
        shown = [[f"{v:.4g}" if isinstance(v, float) else str(v) for v in self[n]] for n in names]
        cells = [names, *zip(*shown, strict=True)]
        widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
        return "\n".join(
            "  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in cells
        )


@dataclass(frozen=True)
class Trial:
    """One repeat: the federation's split, a method's outcome on it, and the local baseline's."""

    fed: Federation
    outcome: Outcome
    baseline: Outcome
    traffic: Traffic = field(default_factory=Traffic)


def pool_is_valid(fed: Federation) -> bool:
    """Whether clients are said to differ only in labels, by the data or by the user."""
    return pooling_test.claimed(fed)


def client_table(trials: Sequence[Trial]) -> Table:
    """One row for each client."""
    fed = trials[0].fed
    weights = [label_weights(t.fed) for t in trials] if pool_is_valid(fed) else []
    counts = [s.counts().tolist() for s in (fed.train, fed.val, fed.test)]
    rows = Table()
    for k, name in enumerate(fed.names):
        n_train, n_val, n_test = (n[k] for n in counts)
        row = {"client": name, "n_train": n_train, "n_val": n_val, "n_test": n_test}
        own = _estimate(
            [(t.fed.test.of(k), t.outcome.own[k], t.baseline.own[k], None) for t in trials]
        )
        if weights:
            row |= _estimate(
                [
                    (t.fed.test.rows, _pool(t.outcome)[k], _pool(t.baseline)[k], weight[k])
                    for t, weight in zip(trials, weights, strict=True)
                ]
            )
            row |= {f"own_{key}": value for key, value in own.items()}
        else:
            row |= own
        for metric in trials[0].outcome.metrics:
            if metric != "accuracy":
                row[metric] = nan_mean(t.outcome.metrics[metric][k] for t in trials)
        row["model"] = trials[0].outcome.chosen[k]
        rows.append(row)
    return rows


def _estimate(tests: Sequence[tuple[Tensor, Tensor, Tensor, Tensor | None]]) -> dict[str, Any]:
    """A client's accuracy, that of its local baseline, and the verdict, from each repeat's test."""

    def mean(correct: Tensor, weight: Tensor | None) -> float:
        return float(correct.mean() if weight is None else correct.double() @ weight)

    return {
        "accuracy": nan_mean(mean(correct, weight) for _, correct, _, weight in tests),
        "local_accuracy": nan_mean(mean(baseline, weight) for _, _, baseline, weight in tests),
        **asdict(paired_test.compare_repeats(tests)),
    }


def accuracies(trial: Trial) -> list[float]:
    """Each client's accuracy in one repeat, by the pooled estimate where it is valid."""
    if not pool_is_valid(trial.fed):
        return [float(own.mean()) for own in trial.outcome.own]
    return [float(x) for x in (_pool(trial.outcome).double() * label_weights(trial.fed)).sum(1)]


def against(run: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """How far one method's mean accuracy is above another's, with Student's paired interval.

    ``run`` and ``other`` are summaries on the same repeats, or, of a single one, on the same
    clients: the pairs are repeats where there are three or more, else clients.
    """
    by = "repeats" if len(run["accuracies"]) > 2 else "clients"
    table, base = (torch.tensor(s["accuracies"], dtype=torch.float64) for s in (run, other))
    pairs = (table - base).mean(1 if by == "repeats" else 0)
    difference, low, high = student(pairs)
    return {"difference": difference, "low": low, "high": high, "by": by}


VERDICTS = ("better off", "worse off", "undecided")


def fairness_against(
    summary: dict[str, Any], base_summary: dict[str, Any], metric: str = "accuracy"
) -> dict[str, Any]:
    """The fairness figures of one method, and how far each is from another method's.

    Every figure (:func:`glocal.evaluation.metrics.fairness`) is taken over the clients of each
    repeat by itself, and then averaged over repeats. The ``worst10`` of a summary is another: it
    takes each client's mean over repeats first, which evens out chance, and so is never the worse
    of the two. Both summaries are of the same repeats and clients.

    Returns:
        ``metric``, ``repeats`` and, for each of mean, worst10, best10, gini (×100) and gap, a dict:
        its ``value``, the ``values`` of the repeats, the ``difference`` from the other method, and
        ``low`` and ``high``, Student's interval of that difference ``by`` repeats, paired. That
        needs three of them. With fewer, the mean is paired by clients (as in :func:`against`), and
        what is a figure of all clients together has no pairs: its ends, and ``by``, are None.
    """
    table, base = _values(summary, metric), _values(base_summary, metric)
    if table.shape != base.shape:
        sizes = [f"{len(t)} repeats of {t.shape[1]} clients" for t in (table, base)]
        raise GlocalError(f"{' cannot be paired with '.join(sizes)}: give both methods the same.")
    lower = metric in metrics.LOWER_IS_BETTER
    spreads, base_spreads = (
        [metrics.fairness(row, lower_is_better=lower) for row in t.tolist()] for t in (table, base)
    )
    figures: dict[str, Any] = {"metric": metric, "repeats": len(table)}
    for figure in metrics.FIGURES:
        values = [spread[figure] for spread in spreads]
        base_values = [spread[figure] for spread in base_spreads]
        pairs = without_nan(v - b for v, b in zip(values, base_values, strict=True))
        by = "repeats" if len(pairs) > 2 else "clients" if figure == "mean" else None
        if by == "clients":
            pairs = without_nan((table - base).nanmean(0))
        figures[figure] = {"value": nan_mean(values), "values": values, **paired(pairs, by)}
    return figures


def _values(summary: dict[str, Any], metric: str) -> Tensor:
    """[repeats, clients]; what JSON holds as null is NaN again."""
    if metric not in summary["values"]:
        raise unknown("metric", metric, summary["values"])
    rows = [[math.nan if v is None else v for v in row] for row in summary["values"][metric]]
    return torch.tensor(rows, dtype=torch.float64)


def summarise(rows: Table, trials: Sequence[Trial]) -> dict[str, Any]:
    """The summary of a federation; its fairness figures are those of the clients' accuracy."""
    n = rows["n_test"]
    spread = metrics.fairness(rows["accuracy"], n)
    benefits = rows["benefit"]
    pooled = pool_is_valid(trials[0].fed)
    summary: dict[str, Any] = {
        **{k: spread[k] for k in (*metrics.FIGURES, *metrics.SPREAD, "mean_examples")},
        "local_mean": nan_mean(rows["local_accuracy"]),
        "benefit": nan_mean(benefits),
        **verdict_counts(rows["verdict"]),
        "above": sum(b > 1e-12 for b in benefits),
        "below": sum(b < -1e-12 for b in benefits),
        "ties": sum(abs(b) <= 1e-12 for b in benefits),
        "clients": len(rows),
        "repeats": len(trials),
        "estimate": "pooled" if pooled else "own",
        "params_up": round(nan_mean(t.traffic.params_up for t in trials)),
        "params_down": round(nan_mean(t.traffic.params_down for t in trials)),
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
        summary["own"] = {
            "mean": nan_mean(rows["own_accuracy"]),
            "local_mean": nan_mean(rows["own_local_accuracy"]),
            **verdict_counts(rows["own_verdict"]),
        }
    summary["metrics"] = {
        name: metrics.fairness(rows[name], n, lower_is_better=name in metrics.LOWER_IS_BETTER)
        for name in trials[0].outcome.metrics
        if name != "accuracy"
    }
    return summary


def verdict_counts(verdicts: Sequence[str]) -> dict[str, int]:
    """How many clients are better off, worse off and undecided."""
    return {name.replace(" ", "_"): verdicts.count(name) for name in VERDICTS}


def label_weights(fed: Federation) -> Tensor:
    """[clients, pooled examples]: what each pooled test example counts for, for each client."""
    y = fed.y[fed.test.rows].cpu()
    return torch.stack([paired_test.pool_weights(y, _labels(fed, k, y)) for k in range(len(fed))])


def _labels(fed: Federation, k: int, pool: Tensor) -> Tensor:
    """How many of each class a client trains on.

    Of a client so small that none of these is in the pool, all its labels are counted: its own test
    examples are in the pool, so that it can always be verdict.
    """
    counts = torch.bincount(fed.y[fed.train.of(k)], minlength=fed.classes).cpu()
    if counts[pool].any():
        return counts
    rows = torch.cat([fed.train.of(k), fed.val.of(k), fed.test.of(k)])
    return torch.bincount(fed.y[rows], minlength=fed.classes).cpu()


def _pool(outcome: Outcome) -> Tensor:
    if outcome.pool is None:
        raise RuntimeError("the pooled test set was not evaluated")
    return outcome.pool
