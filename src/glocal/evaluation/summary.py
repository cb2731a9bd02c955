"""Who is better off than alone, and by how much: a row for each client, and a summary.

A row's ``benefit`` and ``verdict`` are over what the client has alone: the best it can train, where
that was asked for, and else the same model. With the best, ``same_model_benefit`` and
``same_model_verdict`` are over the same model. Where clients are tested on everybody's examples,
``own_…`` is by their own test splits.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from glocal.core.errors import GlocalError, unknown
from glocal.evaluation import metrics, pooling_test
from glocal.evaluation.at_least import shown_at_least
from glocal.evaluation.communication import DIRECTIONS
from glocal.evaluation.evaluate import Outcome
from glocal.evaluation.intervals import LEVEL, nan_mean, paired, without_nan
from glocal.evaluation.mean_benefit import mean_benefit
from glocal.evaluation.trials import Estimate, Trial, over_repeats, pool_is_valid
from glocal.evaluation.verdict import ENOUGH, VERDICTS, Verdict


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


def client_table(trials: Sequence[Trial], same: float | None = None) -> Table:
    """One row for each client; the same is whose interval lies within ``same`` of 0."""
    fed, outcome = trials[0].fed, trials[0].outcome
    tests = Estimate(trials, pooled=_pooled(trials))
    alone, by_same_model = [t.alone for t in trials], [t.baseline for t in trials]
    columns = _columns(tests, alone, same)
    columns["value"] = over_repeats(tests.means([t.outcome for t in trials]))
    columns["local_value"] = over_repeats(tests.means(by_same_model))
    columns["best_local_value"] = [None] * len(fed)
    if trials[0].best is not None:
        columns["best_local_value"] = over_repeats(tests.means(alone))
        of_same = _columns(tests, by_same_model, same)
        if "local_accuracy" in of_same:
            of_same["accuracy"] = of_same.pop("local_accuracy")
        columns |= {f"same_model_{name}": of_same[name] for name in SAME_MODEL if name in of_same}
    columns["constant_value"] = over_repeats([_constant(t.outcome, len(fed)) for t in trials])
    if tests.pooled:
        own = _columns(Estimate(trials, pooled=False), alone, same)
        columns |= {f"own_{name}": values for name, values in own.items()}
    for name in outcome.metrics:
        if name != "accuracy":
            columns[name] = over_repeats([t.outcome.metrics[name] for t in trials])
    counts = [s.counts().tolist() for s in (fed.train, fed.val, fed.test)]
    numbers = dict(zip(("n_train", "n_val", "n_test"), counts, strict=True))
    columns = {"client": list(fed.names), **numbers, **columns, "model": outcome.chosen}
    return Table({n: values[k] for n, values in columns.items()} for k in range(len(fed)))


SAME_MODEL = ("accuracy", "benefit", "low", "high", "verdict")
"""What a row says of the same model alone, where the verdict is over the best alone."""


def _constant(outcome: Outcome, clients: int) -> list[float]:
    """Of each client, the metric of the best constant; NaN where nobody asked."""
    return outcome.constant or [math.nan] * clients


def _columns(tests: Estimate, alone: Sequence[Outcome], same: float | None) -> dict[str, list[Any]]:
    """Every client's accuracy, what it has alone, and the verdict."""
    columns: dict[str, list[Any]] = {}
    if tests.trials[0].fed.target.classes:
        correct = Estimate(tests.trials, pooled=tests.pooled, metric="accuracy")
        columns["accuracy"] = over_repeats(correct.means([t.outcome for t in tests.trials]))
        columns["local_accuracy"] = over_repeats(correct.means(alone))
    if tests.metric != "accuracy":
        columns[f"local_{tests.metric}"] = over_repeats(tests.means(alone))
    found = tests.verdicts(alone, same)
    return columns | {
        each.name: [getattr(verdict, each.name) for verdict in found] for each in fields(Verdict)
    }


_LAST: list[tuple[list[Any], pooling_test.Pooling]] = []
"""What was found last: methods that are compared are set against the same baselines."""


def pooling_of(trials: Sequence[Trial]) -> pooling_test.Pooling:
    """Whether clients are tested on everybody's test examples, and why."""
    fed = trials[0].fed
    known_by = [fed.label_shift_only, fed.pooled, *(t.baseline for t in trials)]
    last = _LAST[0][0] if _LAST else []
    if len(last) != len(known_by) or not all(map(operator.is_, last, known_by)):
        _LAST[:] = [(known_by, pooling_test.pooling([(t.fed, t.baseline) for t in trials]))]
    return _LAST[0][1]


def _pooled(trials: Sequence[Trial]) -> bool:
    of_accuracy = trials[0].outcome.metric == "accuracy"
    return of_accuracy and pool_is_valid(trials[0].fed) and pooling_of(trials).used


def accuracies(trials: Sequence[Trial]) -> list[list[float]]:
    """Each client's accuracy in each repeat, by the pooled estimate where it is valid."""
    tests = Estimate(trials, pooled=_pooled(trials), metric="accuracy")
    return tests.means([t.outcome for t in trials])


def against(run: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """How far one method's mean metric is better than another's, with Student's paired interval.

    ``run`` and ``other`` are summaries of the same repeats, which are the pairs. Of fewer than
    three there is no interval: clients are no pairs, as they may share one model and its luck.
    """
    metric = run.get("metric", "accuracy")
    if metric == "accuracy":
        table, base = (torch.tensor(s["accuracies"], dtype=torch.float64) for s in (run, other))
    else:
        table, base = (_values(summary, metric) for summary in (run, other))
    pairs = (table - base).nanmean(1) * (-1.0 if run.get("lower_is_better") else 1.0)
    return paired(pairs, "repeats" if len(pairs) >= ENOUGH else None)


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
        needs three of them. With fewer, the ends, and ``by``, are None.
    """
    table, base = _values(summary, metric), _values(base_summary, metric)
    if table.shape != base.shape:
        sizes = [f"{len(t)} repeats of {t.shape[1]} clients" for t in (table, base)]
        raise GlocalError(f"{' cannot be paired with '.join(sizes)}: give both methods the same.")
    lower = is_lower(summary, metric)
    spreads, base_spreads = (
        [metrics.fairness(row, lower_is_better=lower) for row in t.tolist()] for t in (table, base)
    )
    figures: dict[str, Any] = {"metric": metric, "repeats": len(table)}
    for figure in metrics.FIGURES:
        values = [spread[figure] for spread in spreads]
        base_values = [spread[figure] for spread in base_spreads]
        pairs = without_nan(v - b for v, b in zip(values, base_values, strict=True))
        by = "repeats" if len(pairs) >= ENOUGH else None
        figures[figure] = {"value": nan_mean(values), "values": values, **paired(pairs, by)}
    return figures


def is_lower(summary: dict[str, Any], metric: str) -> bool:
    """Whether lower is better: of a user's own metric, the summary says so."""
    own = metric == summary.get("metric") and bool(summary.get("lower_is_better"))
    return own or metric in metrics.LOWER_IS_BETTER


def _values(summary: dict[str, Any], metric: str) -> Tensor:
    """[repeats, clients]; what JSON holds as null is NaN again."""
    if metric not in summary["values"]:
        raise unknown("metric", metric, summary["values"])
    rows = [[math.nan if v is None else v for v in row] for row in summary["values"][metric]]
    return torch.tensor(rows, dtype=torch.float64)


def summarise(rows: Table, trials: Sequence[Trial]) -> dict[str, Any]:
    """The summary of a federation; its fairness figures are those of the metric that counts."""
    n, classes = rows["n_test"], trials[0].fed.target.classes
    pooled = _pooled(trials)
    tests = Estimate(trials, pooled=pooled)
    spread = metrics.fairness(rows["value"], n, lower_is_better=tests.lower)
    benefits = rows["benefit"]
    best = trials[0].best is not None
    differences = tests.differences(tests.tested([t.alone for t in trials]))
    _, low, high = mean_benefit(differences, LEVEL)
    counts = verdict_counts(rows["verdict"])
    summary: dict[str, Any] = {
        **{k: spread[k] for k in (*metrics.FIGURES, *metrics.SPREAD, "mean_examples")},
        "local_mean": nan_mean(rows["best_local_value" if best else "local_value"]),
        "benefit": nan_mean(benefits),
        "benefit_low": low,
        "benefit_high": high,
        **counts,
        "above": sum(b > 1e-12 for b in benefits),
        "below": sum(b < -1e-12 for b in benefits),
        "ties": sum(abs(b) <= 1e-12 for b in benefits),
        "clients": len(rows),
        "repeats": len(trials),
        "estimate": "pooled" if pooled else "own",
        "params_up": round(nan_mean(t.traffic.params_up for t in trials)),
        "params_down": round(nan_mean(t.traffic.params_down for t in trials)),
        "bytes_up": round(nan_mean(t.traffic.total("bytes_up") for t in trials)),
        "bytes_down": round(nan_mean(t.traffic.total("bytes_down") for t in trials)),
        "traffic": {name: trials[0].traffic.by_set(name) for name in DIRECTIONS},
        "epsilon": None,
    }
    summary["metric"], summary["lower_is_better"] = tests.metric, tests.lower
    if not classes:
        summary["task"] = trials[0].fed.target.task
    summary["constant_mean"] = nan_mean(rows["constant_value"])
    summary["covers"] = "training and tests" if len(trials) >= ENOUGH else "tests"
    summary["covers_label_shares"] = pooled and trials[0].uncertain_shares
    if len(trials) >= ENOUGH:
        summary["at_least"] = shown_at_least(differences, LEVEL)
        left = len(rows) - summary["at_least"]
        summary["by_chance"] = min((1 - LEVEL) / 2 * left, float(counts["better_off"]))
    if best:
        of_same = verdict_counts(rows["same_model_verdict"])
        summary |= {f"same_model_{name}": n for name, n in of_same.items()}
        summary["same_model_mean"] = nan_mean(rows["local_value"])
        summary["same_model_benefit"] = nan_mean(rows["same_model_benefit"])
        summary["best_alone"] = dict(Counter(name for t in trials for name in t.alone.chosen))
    if classes:
        summary["accuracies"] = accuracies(trials)
    if trials[0].baseline.pool is not None:
        summary["pooling"] = pooling_of(trials).as_json()
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
        name: metrics.fairness(rows[name], n, lower_is_better=is_lower(summary, name))
        for name in trials[0].outcome.metrics
        if name != "accuracy"
    }
    return summary


def verdict_counts(verdicts: Sequence[str]) -> dict[str, int]:
    """How many clients are better off, worse off, the same and undecided."""
    return {name.replace(" ", "_"): verdicts.count(name) for name in VERDICTS}
