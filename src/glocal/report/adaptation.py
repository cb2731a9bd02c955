"""What clients adapted, as tables and a picture: before, after, averaged again, trained without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glocal.experiment.choice import CHOICE
from glocal.experiment.run import Run
from glocal.report import tables
from glocal.report.adapted_rows import show_adaptation
from glocal.report.canvas import COLOURS, GREY, MARKERS, every, label, new_figure, provenance, save
from glocal.report.comparison import choice_in_words, show_privacy
from glocal.report.tables import Cell, table
from glocal.report.units import Unit, unit_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TECHNIQUES = ("fine-tune", "freeze-base", "ewc", "distill", "none")
"""Techniques in the order of their colours and markers."""


def show(everybody: Mapping[str, Run], more: Mapping[str, Mapping[str, Any]]) -> None:
    """Print a row for each client, one for each method, the choice, and what was asked beside."""
    runs = {name: run for name, run in everybody.items() if name != CHOICE}
    for name, run in runs.items():
        if len(runs) > 1:
            print(f"\n{name}")
        _show_clients(run)
    show_adaptation(runs)
    show_privacy(runs)
    s = everybody[CHOICE].summary
    unit = unit_of(s)
    mean = unit.value(s["mean"])
    plain = unit.metric == "accuracy"
    average = f"{mean} % on average," if plain else f"a mean {unit.heading} of {mean},"
    tables.paragraphs(
        f"{choice_in_words(s)} It comes to {average} "
        f"{s['better_off']} better off than alone, {s['worse_off']} worse off, "
        f"{s['same']} the same, {s['undecided']} undecided."
    )
    if any("again" in m for m in more.values()):
        _show_again(runs, more)
    if any("without" in m for m in more.values()):
        _show_without({name: m["without"] for name, m in more.items()})
    _show_notes({name: m["recorded"] for name, m in more.items()})


def _show_clients(run: Run) -> None:
    """Print a row for each client: what it had, what it has now, and what it has alone."""
    unit = unit_of(run.summary)
    rows: list[list[Cell]] = [
        [
            str(r["client"]),
            tables.verdict(r["verdict"]),
            tables.verdict(r["adapted_verdict"]),
            r["adapted_by"],
            str(r["n_train"]),
            *(unit.value(r[k]) for k in ("value", "adapted_value", "local_value")),
            unit.difference(r["adapted_benefit"]),
            unit.span(r["adapted_low"], r["adapted_high"]),
        ]
        for r in run.clients
    ]
    print()
    figures = [f"{of} {unit.heading}" for of in ("before", "adapted", "alone")]
    head = ["client", "before", "adapted", "by", "train", *figures]
    table([*head, "vs alone", "test range"], rows, left=4)


def _show_again(runs: Mapping[str, Run], more: Mapping[str, Mapping[str, Any]]) -> None:
    """Print three rows for each method: as it was, adapted, and adapted and then averaged."""
    rows: list[list[Cell]] = []
    for name, run in runs.items():
        s, averaged = run.summary, more[name]["again"]
        unit = unit_of(s)
        adapted = {k.removeprefix("adapted_"): v for k, v in s.items() if k.startswith("adapted_")}
        parts: list[tuple[str, Mapping[str, Any], Cell]] = [
            (name, s, "–"),
            ("  adapted", adapted, unit.interval(s["adapted"]["gain"])),
            ("  adapted, then averaged", averaged, unit.interval(averaged["gain"])),
        ]
        for title, figures, gain in parts:
            counts = [str(figures[k]) for k in ("better_off", "worse_off", "same", "undecided")]
            shown = [unit.value(figures[k]) for k in ("mean", "worst10")]
            rows.append([(title, "bold" if title == name else ""), *shown, gain, *counts])
    sent = tables.short(next(iter(more.values()))["again"]["params_up"])
    private = any(run.summary.get("privacy") for run in runs.values())
    heads = ["better off", "worse off", "same", "undecided"]
    tables.show_table(
        ["model", f"mean {unit.heading}", "worst 10 %", "gain", *heads],
        rows,
        "Adapted, then averaged: one model for all, the plain mean of the adapted ones."
        f" For that every client sends what it adapted, {sent} parameters together"
        + (", which the run's privacy does not protect." if private else "."),
    )


def _show_without(results: Mapping[str, Mapping[str, Any]]) -> None:
    """Print two rows for each method: the new model at those who trained it, and at the removed."""
    rows: list[list[Cell]] = []
    for name, result in results.items():
        for group, g in result["groups"].items():
            counts = [str(g[k]) for k in ("better", "worse", "lower")]
            accuracies = [tables.percent(g[k]) for k in ("before", "after")]
            title = f"{group}: {len(g['clients'])}"
            rows.append([(name, "bold"), title, *accuracies, tables.interval(g["change"]), *counts])
    if rows:
        head = ["method", "clients", "with all %", "without %", "change", "better", "worse"]
        tables.show_table(
            [*head, "lower"],
            rows,
            "Without: the same method trained anew without the clients whose validation accuracy "
            "is higher alone, evaluated at both groups before any adaptation. Change: points, with "
            "a paired 90 % interval over clients. Better, worse: than with the old model, "
            f"{tables.how_shown(1)}; lower: how many have a lower accuracy at all.",
            left=2,
        )
    else:
        print()
    tables.paragraphs(*(_removed(name, result) for name, result in results.items()))


def _removed(name: str, result: Mapping[str, Any]) -> str:
    if not result["removed"]:
        return f"{name}: nobody does better alone on validation data, so nobody is removed."
    if not result["groups"]:
        return (
            f"{name}: everybody does better alone on validation data, so nobody is left to train."
        )
    return f"Removed from {name}: {tables.some(result['removed'])}."


def _show_notes(recorded: Mapping[str, Mapping[str, Any]]) -> None:
    """Print what a reader must know of where these numbers come from."""
    repeats = max(m["repeats"] for m in recorded.values())
    if repeats > 1:
        tables.paragraphs(
            f"There were {repeats} repeats, and a folder has the models of the first: all of this "
            "is of the first."
        )
    if any(m["best_alone"] for m in recorded.values()):
        tables.paragraphs(
            "Alone is the same model here; the run's folder sets clients against the best that "
            "they can train alone, which may be more."
        )
    if any(m["tuned"] for m in recorded.values()):
        tables.paragraphs(
            "The run was tuned, so its models had learned from the validation data by which "
            "clients choose here, and what is trained without some clients is not tuned: to "
            "compare like with like, train with --no-tune and adapt that."
        )
    for name, m in recorded.items():
        if m["largest_difference"] > 1e-9:
            tables.paragraphs(
                f"{name}: accuracies differ from those in its folder by up to "
                f"{tables.percent(m['largest_difference'])} points; was it trained on another "
                "machine or with other versions?"
            )


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Draw who gains over being alone, after adapting, and by which technique."""
    runs = {name: run for name, run in result["methods"].items() if "adapted" in run["summary"]}
    figure = new_figure(15, 3.7 * len(runs) + 0.4)
    panels = figure.subplots(len(runs), 4, sharey=False, squeeze=False)
    used = {r["adapted_by"] for run in runs.values() for r in run["clients"]}
    used |= {name for run in runs.values() for name in run["summary"]["adapted"]["techniques"]}
    unit = unit_of(next(iter(runs.values()))["summary"])
    for row, (name, run) in zip(panels, runs.items(), strict=True):
        _dots(row[:3], run["clients"], used, unit)
        _cumulative(row[3], run, unit)
        row[0].set_title(name, fontsize=10, fontweight="bold", loc="left")
    names = (
        f"{unit.name} of the model alone" + (" (%)" if unit.metric == "accuracy" else ""),
        "training examples",
        "label entropy of the client's data (bits)",
        "clients, by accuracy alone (lowest first)",
    )
    for axes, name in zip(panels[-1], names, strict=True):
        axes.set_xlabel(name)
    _one_legend(figure, used)
    note = provenance(
        result["data"],
        len(run["clients"]),
        result["settings"],
        "1 split and seed",
        "a dot is a client, its colour the technique chosen on its validation data",
        "shaded: less than alone",
    )
    save(figure, path, _before_and_after(runs), note)


def _dots(panels: Any, rows: Sequence[Mapping[str, Any]], used: set[str], unit: Unit) -> None:
    """Draw a dot for each client: the adapted model above the one alone, by three features.

    Clients for whom the metric has no value are left out.
    """
    alone = "local_accuracy" if unit.metric == "accuracy" else "local_value"
    clients = [r for r in rows if r["adapted_benefit"] is not None and r[alone] is not None]
    gains = [unit.scale * r["adapted_benefit"] for r in clients]
    least = unit.scale / 100
    margin = 0.08 * max([least, max(gains, default=0.0) - min(gains, default=0.0)])
    low, high = min([*gains, -2 * margin]) - margin, max([*gains, 2 * margin]) + margin
    features = (
        [unit.scale * r[alone] for r in clients],
        [r["n_train"] for r in clients],
        [r["complexity"] for r in clients],
    )
    over_alone = "adapted − alone (points)"
    if unit.metric != "accuracy":
        over_alone = f"adapted better than alone, in {unit.of_differences}"
        panels[0].locator_params(axis="x", nbins=5)
    for i, (axes, x) in enumerate(zip(panels, features, strict=True)):
        axes.axhspan(low, 0, color="#f3e3dd", zorder=0, linewidth=0)
        axes.axhline(0, color=GREY, linewidth=1)
        for name in (t for t in TECHNIQUES if t in used):
            theirs = [k for k, r in enumerate(clients) if r["adapted_by"] == name]
            look = _technique(name)
            look |= {"linestyle": "", "markeredgecolor": "white", "markeredgewidth": 0.6}
            look["markersize"] = 7 if look["marker"] == "^" else 6  # a triangle looks smaller
            axes.plot([x[k] for k in theirs], [gains[k] for k in theirs], **look)
        _how_many(axes, [(x[k], gains[k]) for k in range(len(clients))], unit.digits)
        label(axes, "", over_alone if i == 0 else "")
        axes.set_ylim(low, high)
        if i:
            axes.tick_params(labelleft=False)
    if clients and max(features[2]) - min(features[2]) < 0.1:
        middle = sum(features[2]) / len(clients)
        panels[2].set_xlim(middle - 0.3, middle + 0.3)  # a tick for each digit would look like news


def _how_many(axes: Axes, dots: Sequence[tuple[float, float]], digits: int) -> None:
    """Write, beside dots that lie on each other, of how many clients they are."""
    counts: dict[tuple[float, float], int] = {}
    for x, y in dots:
        at = round(x, digits), round(y, digits)
        counts[at] = counts.get(at, 0) + 1
    for at, n in counts.items():
        if n > 1:
            look: dict[str, Any] = {"textcoords": "offset points", "fontsize": 7, "color": GREY}
            axes.annotate(f"×{n}", at, xytext=(0, 6), ha="center", **look)


BEST: dict[str, Any] = {"color": "#000000", "linestyle": ":", "linewidth": 1.6}
"""How the best technique of each client is drawn."""


def _cumulative(axes: Axes, run: Mapping[str, Any], unit: Unit) -> None:
    """Draw points gained over the federated model, client after client, by each technique."""
    import numpy as np

    adapted = run["summary"]["adapted"]
    order = np.argsort([r["local_accuracy"] for r in run["clients"]], kind="stable")
    before = np.mean(run["summary"]["accuracies"], axis=0)
    axes.axhline(0, color=GREY, linewidth=1)

    def draw(accuracies: Any, **look: Any) -> None:
        gains = 100 * (np.mean(accuracies, axis=0) - before)[order]
        axes.plot(range(len(gains) + 1), np.concatenate([[0.0], np.cumsum(gains)]), **look)

    for i, (name, technique) in enumerate(adapted["techniques"].items()):
        marks = every(2 * i, len(order) + 1, 5)
        draw(technique["accuracies"], markevery=marks, **_technique(name))
    if len(adapted["techniques"]) > 1:
        draw(adapted["accuracies"], **BEST)
    of = "" if unit.metric == "accuracy" else "accuracy: "
    label(axes, "", f"{of}adapted − before, summed (points)")
    axes.locator_params(axis="x", integer=True)


def _technique(name: str) -> dict[str, Any]:
    """How a technique is drawn, in all panels the same."""
    i = TECHNIQUES.index(name)
    colour, marker = (GREY, "X") if name == "none" else (COLOURS[i], MARKERS[i])
    return {"color": colour, "marker": marker, "linewidth": 1.2, "markersize": 5}


def _one_legend(figure: Figure, used: set[str]) -> None:
    """Draw one legend for all panels."""
    from matplotlib.lines import Line2D

    words = {"none": "none: stays\nwith what it got"}
    shown = [
        Line2D([], [], linestyle="" if t == "none" else "-", label=words.get(t, t), **_technique(t))
        for t in TECHNIQUES
        if t in used
    ]
    if len(used - {"none"}) > 1:
        shown.append(Line2D([], [], label="each client's best", **BEST))
    figure.legend(handles=shown, loc="outside right center", fontsize=8, frameon=False)


def _before_and_after(runs: Mapping[str, Any]) -> str:
    """How many are better and worse off than alone, before and after."""
    counts = [
        ", ".join(
            f"{run['summary'][f'{off}_off']} → {run['summary'][f'adapted_{off}_off']} ({name})"
            for name, run in runs.items()
        )
        for off in ("better", "worse")
    ]
    between = "; " if len(runs) < 3 else ";\n"  # else a line is longer than the picture
    return f"Better off than alone, before → after: {counts[0]}{between}worse off: {counts[1]}"
