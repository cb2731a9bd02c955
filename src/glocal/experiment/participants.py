"""What a comparison says to each participant: join with this method, stay alone, or unknown.

The method is the one that validation data advises (:mod:`glocal.experiment.advice`); the figures
are of test data, which chose nothing. Where the two disagree, the sentence says which says what.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from typing import Any

from glocal.evaluation.measures import NAMES, SHARES
from glocal.evaluation.verdict import MOST_EXAMPLES, MOST_REPEATS
from glocal.experiment.run import Run

NOT_DEFINED = {
    "auc": "AUC needs both classes, and its test examples are of one",
    "average_precision": "average precision needs positive test examples, and it has none",
    "r2": "R² needs test labels that differ, and all of its are the same",
}
"""Why a metric has no value for a client."""

COLUMNS = (
    *("client", "method", "metric", "value", "local_value", "best_local_value", "benefit"),
    *("estimate", "low", "high", "verdict", "needs_examples", "needs_repeats"),
    *("n_train", "n_val", "n_test", "advised"),
)
"""Of the table of clients × methods that is written as CSV."""

Row = Mapping[str, Any]


def offers(runs: Mapping[str, Run]) -> dict[str, Run]:
    """The runs in which clients take part, and are set against being alone."""
    return {
        name: run
        for name, run in runs.items()
        if not run.is_baseline and run.summary["benefit"] is not None and run.trained is not None
    }


def sentences(runs: Mapping[str, Run]) -> list[dict[str, Any]]:
    """For each client its name, the method advised, that method's verdict, and a sentence.

    Without a local baseline nobody can be told anything, and there are none.
    """
    joined = offers(runs)
    if not joined:
        return []
    first = next(iter(joined.values()))
    said = []
    for k, row in enumerate(first.clients):
        advised = row.get("advised", next(iter(joined)))
        run = joined.get(advised)
        if all(_is_missing(each.clients[k]["benefit"]) for each in joined.values()):
            text = _cannot_be_told(row, first.summary)
        elif run is None:
            text = _alone(joined, k)
        else:
            text = _about(advised, run.clients[k], run.summary, chosen="advised" in row)
            better = _better_with(joined, k)
            if better and run.clients[k]["verdict"] != "better off":
                text += f"; its test data, which does not choose, shows it better off {better}"
        said.append(
            {
                "client": str(row["client"]),
                "advised": advised,
                "verdict": None if run is None else run.clients[k]["verdict"],
                "sentence": f"{row['client']}: {text}.",
            }
        )
    return said


def _about(method: str, row: Row, summary: Row, *, chosen: bool) -> str:
    """What to do with a method, from its verdict on a client.

    It is ``chosen`` on validation data, or it is the only one.
    """
    if _is_missing(row["benefit"]):
        return _cannot_be_told(row, summary)
    gain = difference(row, summary)
    if row["verdict"] == "better off":
        return f"join with {method}, {gain}"
    if row["verdict"] == "worse off" and not chosen:
        return f"stay alone; with {method} it is worse off, {gain}"
    if row["verdict"] == "worse off":
        return (
            f"join with {method} by its validation data, which chooses; its test data shows it "
            f"worse off with it, {gain}"
        )
    if row["verdict"] == "same":
        return f"about the same with {method} as alone, {gain}"
    return f"cannot be told; with {method} {gain}, and {_what_it_takes(row, summary)}"


def _cannot_be_told(row: Row, summary: Row) -> str:
    """Why a client has no benefit, large or small."""
    why = NOT_DEFINED.get(summary["metric"], "the metric has no value on its test examples")
    return f"cannot be told: {why if row['n_test'] else 'it has no test examples'}"


def _what_it_takes(row: Row, summary: Row) -> str:
    """What would decide."""
    needs = row.get("needs") or {}
    if "examples" in needs:
        return f"it would take {needs['examples']:,} test examples (it has {row['n_test']:,})"
    if "repeats" in needs:
        return f"it would take {needs['repeats']} repeats (there were {summary['repeats']})"
    return (
        f"neither {MOST_EXAMPLES:,} test examples nor {MOST_REPEATS} repeats would tell so small a "
        "difference"
    )


def _alone(joined: Mapping[str, Run], k: int) -> str:
    """That a client is advised to stay alone, and what the methods have on its test data."""
    if better := _better_with(joined, k):
        return (
            "stay alone by its validation data, which chooses; its test data shows it better off "
            f"{better}"
        )
    gains = [
        f"{name} {difference(run.clients[k], run.summary)}"
        for name, run in joined.items()
        if not _is_missing(run.clients[k]["benefit"])
    ]
    return f"stay alone, as its validation data says; on test data: {', '.join(gains)}"


def _better_with(joined: Mapping[str, Run], k: int) -> str:
    """The methods with which test data shows a client better off; empty if there are none."""
    return ", and ".join(
        f"with {name}, {difference(run.clients[k], run.summary)}"
        for name, run in joined.items()
        if run.clients[k]["verdict"] == "better off"
    )


def difference(row: Row, summary: Row) -> str:
    """``+3.1 points AUC (0.8 … 5.2)``: what a client gains, with its interval.

    In a unit of its own it is ``MAE better by 1.3 (0.2 … 2.4)``; a loss is ``MAE worse by``.
    """
    name = NAMES.get(summary["metric"], summary["metric"])
    if not _in_points(summary):
        lost = row["estimate"] < 0
        # What is lost is written as its size: the ends of the interval change places, too.
        if lost:
            row = {"estimate": -row["estimate"], "low": -row["high"], "high": -row["low"]}
        gain, _, ends = figures(row, summary).partition(" ")
        return f"{name} {'worse' if lost else 'better'} by {gain.removeprefix('+')} {ends}"
    gain, _, ends = figures(row, summary).partition(" ")
    return f"{gain} points {ends}" if name == "accuracy" else f"{gain} points {name} {ends}"


def figures(row: Row, summary: Row) -> str:
    """``+3.1 (0.8 … 5.2)``: the same without its unit; above zero is better."""
    scale, digits = (100, 1) if _in_points(summary) else (1, _digits(summary))
    gain, low, high = (scale * row[k] for k in ("estimate", "low", "high"))
    return f"{gain:+.{digits}f} ({low:.{digits}f} … {high:.{digits}f})"


def _in_points(summary: Row) -> bool:
    """Whether 1 is all there is of the metric; else differences are in its own unit."""
    return summary["metric"] in SHARES


def _digits(summary: Row) -> int:
    """How many decimals show three digits of the metric's size."""
    size = abs(summary.get("mean") or 1.0)
    return max(0, 2 - math.floor(math.log10(size))) if math.isfinite(size) and size > 0 else 3


def _is_missing(value: float | None) -> bool:
    return value is None or math.isnan(value)


def as_csv(methods: Mapping[str, Mapping[str, Any]]) -> bytes:
    """The table of clients × methods, a line for each pair, in UTF-8.

    ``methods`` are those of a result (:func:`glocal.experiment.result_files.result`).
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for name, run in methods.items():
        for row in run["clients"]:
            needs = row.get("needs") or {}
            cells = {
                **row,
                "method": name,
                "metric": run["summary"]["metric"],
                "needs_examples": needs.get("examples"),
                "needs_repeats": needs.get("repeats"),
            }
            if run.get("baseline"):
                cells |= dict.fromkeys(("benefit", "estimate", "low", "high", "verdict"))
            writer.writerow([cells.get(column) for column in COLUMNS])
    return text.getvalue().encode()
