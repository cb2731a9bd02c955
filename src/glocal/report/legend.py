"""What the figures of a comparison mean, in sentences below its table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from glocal.evaluation import metrics
from glocal.evaluation.communication import BYTES
from glocal.evaluation.partial_pooling import FEWEST
from glocal.report.recorded import Result
from glocal.report.tables import Cell, plural, some
from glocal.report.units import Unit, unit_of


def legend(runs: Mapping[str, Result]) -> list[str]:
    """Where clients are tested, what benefits are, and what verdicts mean."""
    summaries = [run.summary for run in runs.values()]
    summary, clients = summaries[0], next(iter(runs.values())).clients
    where = (
        "all clients' test examples, weighted by its label shares"
        if summary["estimate"] == "pooled"
        else "each client's own test split"
    )
    repeats, unit = summary["repeats"], unit_of(summary)
    lower = " (lower is better)" if unit.lower else ""
    lines = [
        f"{plural(len(clients), 'client')}, {sum(clients['n_train'])} training examples, "
        f"{_parameters(summary)}" + (f", {repeats} repeats." if repeats > 1 else "."),
        f"{unit.name[0].upper()}{unit.name[1:]}{lower}: each client's model on {where}; means over "
        f"clients. {_what_is_above(summaries)}"
        f"Sent: parameters communicated, to and from all sampled clients together{_in_bytes(runs)}."
        " Gradients: of one example each, by all clients together.",
    ]
    if any(s["benefit"] is not None for s in summaries):
        lines.append(_what_verdicts_mean(summary))
        if "pooling" in summary and summary["metric"] == "accuracy":
            lines.append(summary["pooling"]["why"])
    if any("early_stopping" in s for s in summaries):
        lines.append(_what_is_kept(runs))
    if any("new_test" in s for s in summaries):
        lines.append("New test: all clients' logits averaged, on everybody's test examples.")
    lines += [line for name, run in runs.items() for line in _what_is_shared(name, run)]
    return [*lines, *_about_constants(runs, unit), *_without_value(clients, unit)]


def meaning(summary: Mapping[str, Any]) -> list[str]:
    """What a benefit and a verdict are, without a word about any client."""
    if summary["benefit"] is None:
        return []
    return [f"{_what_is_above([summary]).strip()}", _what_verdicts_mean(summary)]


def _parameters(summary: Mapping[str, Any]) -> str:
    """How large the model is; where clients have different ones, each of them."""
    if "models" not in summary:
        return f"{summary['parameters']:,} parameters"
    each = [
        f"{m['model']} ({plural(m['clients'], 'client')}, {m['parameters']:,} parameters)"
        for m in summary["models"]
    ]
    return f"models {', '.join(each)}"


def _what_is_shared(name: str, run: Result) -> list[str]:
    """Where clients have different models: which share of each is communicated, if any."""
    models = [m for m in run.summary.get("models", ()) if m["shared"]]
    each = [f"{100 * m['shared'] / m['parameters']:.1f} % of {m['model']}" for m in models]
    total = f"{models[0]['shared']:,} parameters" if models else ""
    return [f"Shared with {name}: {total}, {', '.join(each)}."] if models else []


def any_compressed(runs: Mapping[str, Result]) -> bool:
    """Whether what some method sends up is not so many numbers in single precision."""
    sent = [(s["params_up"], s.get("bytes_up")) for s in (run.summary for run in runs.values())]
    # Means over repeats are rounded.
    return any(size is not None and abs(size - BYTES * n) > BYTES for n, size in sent)


def _in_bytes(runs: Mapping[str, Result]) -> str:
    if not any_compressed(runs):
        return ""
    return (
        "; of compressed updates the numbers that are sent, and in bytes all that is sent with them"
    )


def _what_is_kept(runs: Mapping[str, Result]) -> str:
    """Which rounds were kept, and how many were trained."""
    each = []
    for name, run in runs.items():
        if early := run.summary.get("early_stopping"):
            rounds = [f"{kept['round']} of {kept['trained']}" for kept in early]
            each.append(f"{name} {some(rounds)}")
    several = next(iter(runs.values())).summary["repeats"] > 1
    over, where = (", its mean over repeats", "In each repeat") if several else ("", "Here")
    return (
        f"Kept round: the best on validation data, of those that were trained{over}; what was sent "
        f"and computed after it counts, too. {where}: {'; '.join(each)}."
    )


def _what_is_above(summaries: Sequence[Mapping[str, Any]]) -> str:
    """What stands in the columns of the benefit."""
    if all(s["benefit"] is None for s in summaries):
        return ""
    unit = unit_of(summaries[0])
    better = "better than" if unit.lower else "above"
    counted = f"by how much {unit.of_differences} is" if unit.scale == 1 else unit.of_differences
    best = next((s["best_alone"] for s in summaries if "best_alone" in s), None)
    if best is None:
        what = "the model the client trains by itself"
        return f"vs alone: {counted} {better} {what}, with a 90 % interval. "
    families = ", ".join(f"{k} {n}" for k, n in sorted(best.items(), key=lambda i: -i[1]))
    which = f": {families}" if families else ""  # a page of one participant has no counts
    return (
        f"vs same model: {counted} {better} the same model that the client trains by itself; vs "
        f"best alone: {better} the best it can train by itself (chosen on its own data{which}), "
        "with a 90 % interval. "
    )


def _what_verdicts_mean(summary: Mapping[str, Any]) -> str:
    metric, unit = summary["metric"], unit_of(summary)
    same = f"Same: within {unit.tolerance(summary.get('same_within'))}"
    if summary["covers"] == "tests":
        by = "a paired test at 90 %" if metric == "accuracy" else "a normal 90 % interval"
        return (
            f"Better or worse off: of these trained models, by {by}; models that are trained again "
            f"may differ: --repeats 3. {same}; else undecided."
        )
    text = (
        "Better or worse off: shown at 90 % for a client that takes part and trains anew, by an "
        "interval that covers test examples and the luck of training on both sides; it does not "
        "cover other clients, or data of another kind."
    )
    if summary["estimate"] == "own" and summary["clients"] >= FEWEST:
        text += (
            " On own test splits it holds for 90 % of clients on average: one that differs from "
            "all others is drawn towards them."
        )
    if summary.get("covers_label_shares"):
        text += " A client's interval covers its label shares, too; that of the mean does not."
    return f"{text} {same}. Undecided: neither is shown."


IMBALANCED = 0.7
"""What predicting always the same must reach by accuracy for a row of the table."""


def constant_row(runs: Mapping[str, Result], columns: int) -> list[list[Cell]]:
    """The row of the constant prediction: of numbers, and where classes are imbalanced."""
    first = next(iter(runs.values()))
    values = _constants(first.clients)
    if not values or not (first.summary.get("task") or _worth_showing(runs)):
        return []
    unit = unit_of(first.summary)
    spread = metrics.fairness(values, lower_is_better=unit.lower)
    shown = [unit.value(spread[k]) for k in ("mean", "worst10", "best10")]
    return [[("constant", "dim"), *shown, f"{spread['gini']:.1f}", *["–"] * (columns - 5)]]


def _constants(rows: Any) -> list[float]:
    each = [row.get("constant_value") for row in rows]
    return [v for v in each if v is not None and not math.isnan(v)]


def _worth_showing(runs: Mapping[str, Result]) -> bool:
    """Whether the constant prediction does better than some model, or nearly all there is.

    By another metric than accuracy it is always shown: who chose one knows why.
    """
    first = next(iter(runs.values())).summary
    constant = first.get("constant_mean")
    if constant is None:
        return False
    if first["metric"] != "accuracy" or constant >= IMBALANCED:
        return True
    return any(bool(_below(run)) for run in runs.values())


def _below(run: Result) -> list[str]:
    """The clients for which the constant prediction does better than both models."""
    sign = -1 if run.summary.get("lower_is_better") else 1
    names = []
    for row in run.clients:
        have = [row.get(k) for k in ("value", "local_value", "best_local_value")]
        values = [sign * v for v in have if v is not None and not math.isnan(v)]
        constant = row.get("constant_value")
        if values and constant is not None and sign * constant > max(values) + 1e-12:
            names.append(str(row["client"]))
    return names


def _about_constants(runs: Mapping[str, Result], unit: Unit) -> list[str]:
    """What the constant row is, and whose models are worse than it."""
    first = next(iter(runs.values()))
    if not constant_row(runs, 5):
        return []
    what = (
        ("the mean" if unit.metric in ("rmse", "r2") else "the median")
        if first.summary.get("task")
        else "the most frequent class"
    )
    lines = [f"Constant: always {what} of the client's own training labels, without a model."]
    for name, run in runs.items():
        if below := _below(run):
            other = "" if unit.metric != "accuracy" else " (--metric auc may tell more)"
            lines.append(
                f"Warning: with {name} a constant does better than every model at "
                f"{plural(len(below), 'client')}{other}: {some(below)}."
            )
    return lines


def _without_value(rows: Any, unit: Unit) -> list[str]:
    """The clients for which the metric does not exist, and why."""
    lacking = [
        str(row["client"])
        for row in rows
        if "value" in row and (row["value"] is None or math.isnan(row["value"])) and row["n_test"]
    ]
    if not lacking:
        return []
    why = {
        "auc": "their test examples are of one class",
        "average_precision": "their test examples have no positive",
        "r2": "their test labels are all the same",
    }.get(unit.metric, "it is not defined on their test examples")
    return [f"No {unit.name} for {plural(len(lacking), 'client')}, since {why}: {some(lacking)}."]
