"""What each client gains over being alone, drawn: a panel for each method of a comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glocal.core.errors import GlocalError
from glocal.experiment.result_files import figures
from glocal.report.canvas import check_picture, new_figure, plain_text, save, titled
from glocal.report.tables import plural
from glocal.report.units import Unit, unit_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from glocal.experiment.run import Run

NAMED = 40
"""Up to so many clients have their names beside them."""

LONGEST = 26
"""Letters of a name that are drawn."""

IN_A_ROW = 4

STYLES: dict[str, dict[str, Any]] = {
    "better off": {"color": "#0072B2", "marker": "o"},
    "worse off": {"color": "#D55E00", "marker": "s"},
    "same": {"color": "#009E73", "marker": "D"},
    "undecided": {"color": "#8a8a8a", "marker": "o", "markerfacecolor": "white"},
}
"""Colours that colour-blind readers can tell apart, and markers that say the same."""

Row = Mapping[str, Any]


def draw(found: Mapping[str, Any], path: Path) -> None:
    """Draw a comparison's result to a file."""
    with plain_text():
        figure, title, note = _drawn(found)
        save(figure, path, title, note)


def figure_of(runs: Mapping[str, Run], path: Path | None) -> Figure:
    """The figure of runs that are there, and a file of it if a path is given."""
    if path is not None:
        check_picture(path, "the picture")
    found = figures(runs)
    if path is not None:
        draw(found, path)
    with plain_text():
        figure, title, note = _drawn(found)
        titled(figure, title, note)
    return figure


def _drawn(found: Mapping[str, Any]) -> tuple[Figure, str, str]:
    """The figure, its title and its note."""
    methods = {
        name: method
        for name, method in found["methods"].items()
        if not method.get("baseline") and method["summary"].get("benefit") is not None
    }
    if not methods:
        raise GlocalError(
            "there is nothing to draw: clients are not set against what they have alone; compare "
            "a method other than local, and with a baseline."
        )
    first = next(iter(methods.values()))
    clients, unit = len(first["clients"]), unit_of(first["summary"])
    named = clients <= NAMED
    across = min(len(methods), IN_A_ROW)
    down = -(-len(methods) // across)
    tall = max(1.3, 0.23 * clients + 0.4) if named else 5.6
    figure = new_figure(max(6.0, (2.0 if named else 0.8) + 3.1 * across), down * (tall + 0.7) + 0.9)
    panels = figure.subplots(down, across, squeeze=False, sharex=True, sharey=named)
    common = _order([method["clients"] for method in methods.values()])
    counts = {name: _counts(method["clients"]) for name, method in methods.items()}
    words = [word for word in STYLES if any(each[word] for each in counts.values())]
    for place, axes in enumerate(panels.flat):
        if place >= len(methods):
            axes.set_visible(False)
            continue
        name, method = list(methods.items())[place]
        rows = [method["clients"][k] for k in (common if named else _order([method["clients"]]))]
        _panel(axes, rows, unit, named=named)
        said = ", ".join(f"{counts[name][word]} {word}" for word in words)
        axes.set_title(f"{_shortened(name, 34)}\n{said}", fontsize=8, loc="left")
        if place + across >= len(methods):
            axes.set_xlabel(_axis(unit), fontsize=8.5)
            axes.tick_params(labelbottom=True)
    _legend(figure, words)
    about, data = first["summary"], found["data"]
    without = sum(not _is_known(row) for row in first["clients"])
    order = "in the order of their mean over methods" if named else "in the order of each method"
    note = " · ".join(
        [
            f"{Path(str(data.get('data'))).name}, {data.get('partition')}",
            f"{clients} clients{f' {order}' if len(methods) > 1 else ''}",
            f"{plural(about['repeats'], 'repeat')}, bars: 90 % intervals, on test data",
            *([f"{without} without a value"] if without else []),
        ]
    )
    return figure, "What each client gains over being alone\n", note


def _panel(axes: Axes, rows: Sequence[Row], unit: Unit, *, named: bool) -> None:
    """One method: the clients from the bottom up, those without a value last."""
    axes.axvline(0, color="black", linewidth=0.9, zorder=1)
    for word, style in STYLES.items():
        places = [i for i, row in enumerate(rows) if row["verdict"] == word and _is_known(row)]
        if not places:
            continue
        middle, low, high = (
            [unit.scale * rows[i][key] for i in places] for key in ("estimate", "low", "high")
        )
        above = 3 if word in ("better off", "worse off") else 2
        # By its ends: an estimate that is drawn towards others need not be in the middle.
        thick = 1.4 if named else 0.6
        axes.hlines(places, low, high, color=style["color"], linewidth=thick, zorder=above)
        axes.plot(
            middle,
            places,
            linestyle="none",
            markersize=5 if named else 2.6,
            markeredgewidth=1.2 if named else 0.7,
            zorder=above + 0.5,
            label=word,
            **style,
        )
    for i, row in enumerate(rows):
        if not _is_known(row) and named:
            axes.annotate("no value", (0, i), (4, 0), textcoords="offset points", fontsize=7)
    axes.set_ylim(-0.7, len(rows) - 0.3)
    if named:
        axes.set_yticks(range(len(rows)), [_shortened(str(row["client"])) for row in rows])
        axes.tick_params(axis="y", labelsize=8, length=0)
    else:
        axes.set_ylabel("clients, from the lowest", fontsize=8.5)
        axes.set_yticks([])  # a place in the order would read as a client's name
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(True, axis="x", color="#e5e5e5", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _order(tables: Sequence[Sequence[Row]]) -> list[int]:
    """Clients from the lowest mean estimate to the highest; those without any come first."""
    means: list[float] = []
    for k in range(len(tables[0])):
        known = [rows[k]["estimate"] for rows in tables if _is_known(rows[k])]
        means.append(sum(known) / len(known) if known else -math.inf)
    return sorted(range(len(means)), key=lambda k: means[k])


def _is_known(row: Row) -> bool:
    """Whether a client has a benefit and its interval."""
    values = [row.get(key) for key in ("benefit", "estimate", "low", "high")]
    return all(value is not None and math.isfinite(value) for value in values)


def _axis(unit: Unit) -> str:
    """What the benefit is counted in."""
    if unit.scale == 100:
        return f"points of {unit.name} above alone"
    return f"{unit.name} better than alone by" if unit.lower else f"{unit.name} above alone"


def _counts(rows: Sequence[Row]) -> dict[str, int]:
    """How many clients are drawn with each verdict."""
    return {w: sum(row["verdict"] == w and _is_known(row) for row in rows) for w in STYLES}


def _legend(figure: Figure, words: Sequence[str]) -> None:
    """The verdicts that there are, above the panels."""
    from matplotlib.lines import Line2D

    entries = [
        Line2D([], [], linestyle="none", markersize=5, label=word, **STYLES[word]) for word in words
    ]
    # On the second line of the title, which is empty.
    below = 1 - 0.27 / figure.get_figheight()
    style = {"ncols": 4, "fontsize": 8, "frameon": False, "borderpad": 0, "columnspacing": 1.2}
    figure.legend(
        handles=entries, loc="upper left", bbox_to_anchor=(0, below), handletextpad=0.1, **style
    )


def _shortened(name: str, letters: int = LONGEST) -> str:
    """A name in one line that leaves room for the panels."""
    line = " ".join("".join(c if c.isprintable() else " " for c in name).split())
    return line if len(line) <= letters else f"{line[: letters - 1]}…"
