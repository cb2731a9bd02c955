"""How evenly methods serve clients, as a table, sentences and a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from glocal.evaluation.measures import NAMES
from glocal.evaluation.metrics import FIGURES, LOWER_IS_BETTER, PERCENT, lorenz
from glocal.experiment.run import Run
from glocal.report.canvas import GREY, every, label, new_figure, provenance, save, style
from glocal.report.comparison import off_counts, show_privacy
from glocal.report.tables import (
    Cell,
    how_shown,
    number,
    show_table,
    verdict,
    where_tested,
    with_half,
)


def show(runs: Mapping[str, Run], result: Mapping[str, Any]) -> None:
    """Print every method's figures and differences, what they mean, and a sentence for each."""
    metric, base = result["metric"], result["against"]
    unit = " %" if metric in PERCENT else ""
    head = ["method", f"mean{unit}", "worst 10 %", "best 10 %", "Gini ×100", f"gap{unit}"]
    rows = [row for name, run in runs.items() for row in _rows(name, run, result)]
    show_table([*head, "better off", "worse off"], rows, *_legend(runs[base], result))
    show_privacy(runs)
    others = [name for name in runs if name != base]
    if others:
        print(f"\nAgainst {base}:")
    for name in others:
        print(in_words(name, result["fairness"][name]))


def _rows(name: str, run: Run, result: Mapping[str, Any]) -> list[list[Cell]]:
    """The figures of one method and, of all but the base, a row of differences."""
    figures = result["fairness"][name]
    values = [number(figures[f]["value"], **_unit(figures, f)) for f in FIGURES]
    counts = ["–", "–"] if run.is_baseline else off_counts(run.summary)
    rows: list[list[Cell]] = [[(name, "bold"), *values, *counts]]
    if name != result["against"]:
        mean, worst, _, gini, gap = (
            verdict(direction(figures, f), _difference(figures, f)) for f in FIGURES
        )
        # The best clients have no part in the question, and the columns no room for them.
        rows.append(["", mean, worst, "", gini, gap, "", ""])
    return rows


def _difference(figures: Mapping[str, Any], figure: str) -> str:
    """``+1.3 ± 0.9``."""
    return with_half(figures[figure], "difference", **_unit(figures, figure), sign="+")


def _unit(figures: Mapping[str, Any], figure: str) -> dict[str, Any]:
    """In per cent where the metric is a share; the Gini coefficient is ×100 as it comes."""
    share = figures["metric"] in PERCENT
    return {
        "scale": 100 if share and figure != "gini" else 1,
        "digits": 1 if share or figure == "gini" else 3,
    }


def direction(figures: Mapping[str, Any], figure: str) -> str:
    """Better, worse or undecided: does the interval of the difference leave zero out?

    Less is better of the Gini coefficient and the gap, and of every figure of a loss or an error.
    """
    low, high = figures[figure]["low"], figures[figure]["high"]
    if low is None or low <= 0 <= high:
        return "undecided"
    less = figure in ("gini", "gap") or figures["metric"] in LOWER_IS_BETTER
    return "better" if (high < 0) == less else "worse"


def in_words(name: str, figures: Mapping[str, Any]) -> str:
    """What became of the worst tenth, and at what price."""

    def ranged(figure: str) -> str:
        keys = ("difference", "low", "high")
        unit = _unit(figures, figure)
        center, low, high = (number(figures[figure][key], **unit, sign="+") for key in keys)
        return f"{center} ({'no interval' if low == '–' else f'{low} … {high}'})"

    return (
        f"{name}: worst 10 % {ranged('worst10')}, {direction(figures, 'worst10')}, at "
        f"{ranged('mean')} of the mean, {direction(figures, 'mean')}."
    )


def _legend(run: Run, result: Mapping[str, Any]) -> list[str]:
    s, metric, base = run.summary, result["metric"], result["against"]
    k, repeats = s["clients"], s["repeats"]
    held = [sum(not math.isnan(v) for v in row) for row in s["values"][metric]]
    few, many = min(held), max(held)
    counted = str(few) if few == many else f"{few} to {many}"
    lacking = f"the {counted} of {k} clients whose test data has enough for it"
    clients = f"the {k} clients" if few == k else lacking
    lower = metric in LOWER_IS_BETTER
    where = where_tested(s if metric == "accuracy" else {"estimate": "own"}, "everybody's")
    mean = (
        f"{metric}{' (lower is better)' if lower else ''}: each client's model on {where}. Mean: "
        f"over {clients}, not over examples. Worst 10 %: the mean of the {-(-few // 10)} worst of "
        "them. Gini: half the difference of two clients, on average, in per cent of the mean. Gap: "
        "between the best client and the worst."
    )
    each = (
        f"All of these are taken in each of {repeats} repeats (other splits and seeds of the same "
        "clients) and then averaged. 'glocal compare' averages each client over repeats first: its "
        f"worst 10 % is {'lower' if lower else 'higher'}, as bad luck evens out."
    )
    counted = s.get("metric") or "accuracy"
    shown = how_shown(repeats)
    if counted != "accuracy":
        shown = shown.replace("an exact paired test at 90 %", "a normal 90 % interval")
    off = f"Better or worse off than alone: in {NAMES.get(counted, counted)}, {shown}."
    about = [mean, *([each] if repeats > 1 else []), *_spread(result, base)]
    return about if s["benefit"] is None else [*about, off]


def _spread(result: Mapping[str, Any], base: str) -> list[str]:
    """What the differences and their intervals are, if there are any."""
    others = [figures for name, figures in result["fairness"].items() if name != base]
    if not others:
        return []
    by = others[0]["mean"]["by"]
    if by == "repeats":
        return [
            f"Signed: the difference from {base}, ± half of Student's 90 % interval, paired over "
            "repeats; one interval in ten misses by chance."
        ]
    return [f"Signed: the difference from {base}; with three repeats or more, with an interval."]


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Draw Lorenz curves, and clients' values in order: a line for each method in both."""
    metric = result["metric"]
    scale, unit = (100, " (%)") if metric in PERCENT else (1, "")
    figure = new_figure(10.5, 4.8)
    left, right = figure.subplots(1, 2)
    left.plot([0, 100], [0, 100], color=GREY, linestyle=":", label="all clients alike")
    for i, (name, method) in enumerate(result["methods"].items()):
        held, ordered = curves(method["summary"]["values"][metric])
        gini = result["fairness"][name]["gini"]["value"]
        shown = name if gini is None else f"{name}: Gini {gini:.1f}"
        clients = [100 * j / len(ordered) for j in range(len(held))]
        # Each method's markers elsewhere, so that lines which coincide can be told apart.
        left.plot(clients, 100 * held, label=shown, markevery=every(i, len(held), 5), **style(i))
        marks = every(i, len(ordered), 20)
        right.plot(range(1, len(held)), scale * ordered, markevery=marks, **style(i))
    right.xaxis.get_major_locator().set_params(integer=True)
    worst = -(-len(ordered) // 10)
    first = len(ordered) - worst if metric in LOWER_IS_BETTER else 0
    right.axvspan(first + 0.5, first + worst + 0.5, color="#eeeeee", label="worst 10 %", zorder=0)
    share = f"their share of the total {metric} (%)"
    label(left, "clients, from the lowest (%)", share, legend=True)
    label(right, "client, from the lowest", f"{metric}{unit}", legend=True)
    n = result["settings"]["repeats"]
    repeats = f"curves of each of {n} splits and seeds, averaged" if n > 1 else "1 split and seed"
    every_client = len(result["methods"][result["against"]]["summary"]["values"][metric][0])
    lacking = [f"{metric} of {len(ordered)} of them"] if len(ordered) < every_client else []
    note = provenance(result["data"], every_client, result["settings"], repeats, *lacking)
    save(figure, path, _worst_tenth(result), note)


def curves(values: Sequence[Sequence[float | None]]) -> tuple[Any, Any]:
    """The Lorenz curve and the sorted values, each averaged over repeats point by point.

    So the area under the one tells the mean Gini coefficient, and the end of the other the mean of
    the worst tenth. There are as many points as clients with a value; a repeat in which fewer have
    one is stretched to that many.
    """
    import numpy as np

    k = max(sum(v is not None for v in row) for row in values) or len(values[0])
    held, ordered = [np.full(k + 1, np.nan)], [np.full(k, np.nan)]
    for row in values:
        live = np.sort([v for v in row if v is not None])
        if len(live):
            x, y = np.transpose(lorenz(live.tolist()))
            held.append(np.interp(np.arange(k + 1) / k, x, y))
            middle = (np.arange(len(live)) + 0.5) / len(live)
            ordered.append(np.interp((np.arange(k) + 0.5) / k, middle, live))
    # Without the first, which is there for metrics that no client has a value of.
    return np.mean(held[1:] or held, axis=0), np.mean(ordered[1:] or ordered, axis=0)


def _worst_tenth(result: Mapping[str, Any]) -> str:
    """Who does best by the worst tenth of clients."""
    base, metric = result["against"], result["metric"]
    worst = {name: figures["worst10"]["value"] for name, figures in result["fairness"].items()}
    if None in worst.values():
        return f"Clients by {metric}"
    unit, sign = _unit(result, "worst10"), " %" if metric in PERCENT else ""
    shown = {name: number(value, **unit) + sign for name, value in worst.items()}
    choose = min if metric in LOWER_IS_BETTER else max
    best = choose(worst, key=lambda name: float(worst[name]))
    title = f"Worst tenth of clients: {metric} {shown[best]} with {best}"
    if best == base:
        return f"{title}, the least bad"
    # Whoever comes first among many does so partly by luck: say how much of it may be chance.
    chance = _difference(result["fairness"][best], "worst10")
    return f"{title}, {shown[base]} with {base} ({chance})"
