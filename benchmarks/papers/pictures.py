"""Figures of papers drawn from cells: who gains what by adapting; accuracy along λ.

A table's picture is of each group's first seed; a table without cells that have what is drawn has
none.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glocal.report import adaptation
from glocal.report.canvas import label, new_figure, save, style
from papers.tables import HERE, Cell, Table

FOLDER = Path(HERE).parents[1] / "docs" / "pictures"

Done = Mapping[Cell, Mapping[str, Any]]


def file_of(table: Table) -> Path:
    """Where a table's picture is, if it has one."""
    return FOLDER / f"papers-{table.name}.png"


def draw(table: Table, done: Done, path: Path) -> bool:
    """Draw what cells of a table have; the result is False, if that is nothing."""
    cells = [
        cell
        for cell in table.cells()
        if cell in done and cell.seed == table.group(cell.group).seeds[0]
    ]
    by_client = [cell for cell in cells if "techniques" in done[cell]["figures"].get("each", {})]
    along = [cell for cell in cells if len(done[cell]["figures"].get("along", {})) > 1]
    if by_client:
        adaptation.draw(adapted(table, by_client, done), path)
    elif along:
        mixtures(table, along, done, path)
    return bool(by_client or along)


def adapted(table: Table, cells: list[Cell], done: Done) -> dict[str, Any]:
    """What :mod:`glocal.report.adaptation` draws; any difference counts, as in the paper."""
    settings = cells[0].settings
    several = len({cell.group for cell in cells}) > 1
    methods = {}
    for cell in cells:
        name = f"{table.group(cell.group).label}: " * several + table.row(cell.row).label
        methods[name] = of_clients(done[cell]["figures"])
    return {"data": settings, "settings": {"model": "–", **settings}, "methods": methods}


def of_clients(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Clients of one run, and how many have more than alone, or less."""
    each = figures["each"]
    alone, after = each["local_accuracy"], each["adapted_accuracy"]
    clients = [
        {
            **{name: each[name][k] for name in ("n_train", "adapted_by", "complexity")},
            "local_accuracy": alone[k],
            "adapted_benefit": after[k] - alone[k],
        }
        for k in range(len(alone))
    ]
    counts = {}
    for name, accuracies in (("", each["accuracy"]), ("adapted_", after)):
        differences = [a - b for a, b in zip(accuracies, alone, strict=True)]
        counts[f"{name}better_off"] = sum(d > 0 for d in differences)
        counts[f"{name}worse_off"] = sum(d < 0 for d in differences)
    techniques = {name: {"accuracies": [them]} for name, them in each["techniques"].items()}
    how = {"techniques": techniques, "accuracies": [after]}
    return {
        "clients": clients,
        "summary": {**counts, "adapted": how, "accuracies": [each["accuracy"]]},
    }


def mixtures(table: Table, cells: list[Cell], done: Done, path: Path) -> None:
    """Draw mean accuracy along λ, a line for each method, a panel for each group."""
    groups = list(dict.fromkeys(cell.group for cell in cells))
    figure = new_figure(0.5 + 4.5 * len(groups), 3.6)
    panels = figure.subplots(1, len(groups), squeeze=False)[0]
    for axes, group in zip(panels, groups, strict=True):
        for i, cell in enumerate(cell for cell in cells if cell.group == group):
            along = done[cell]["figures"]["along"]
            at = [float(name.partition("=")[2]) for name in along]
            axes.plot(
                at, [100 * v for v in along.values()], label=table.row(cell.row).label, **style(i)
            )
        axes.set_title(table.group(group).label, fontsize=10, loc="left")
        label(axes, "λ: share of the local model", "mean test accuracy (%)", legend=True)
    save(figure, path, table.title, "1 split and seed; a mean over clients at each λ")
