"""The results page, made from the tables' files and the cells that are done."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from papers import estimates, pictures
from papers.cells import Place
from papers.measuring import is_figure
from papers.tables import HERE, Cell, Column, Group, Table, published

PAGE = Path(HERE).parents[1] / "docs" / "measurements" / "papers.md"

HEAD = """# The papers' tables, redone

<!-- Made by `python benchmarks/papers/run.py --page`: change the tables' files, not this page. -->

Published figures and ours beside them, from one command a table:

```
python benchmarks/papers/run.py --list
python benchmarks/papers/run.py lg-table6
python benchmarks/papers/run.py --all --device cuda --jobs 6 --seconds 500
```

It can be stopped, and goes on where it stopped. The settings of each table are in a file, which is
linked below; each run that is done is a file in `benchmarks/papers/cells/`, with its figures,
settings, seed, device and versions. *Published* has the paper's figure with its spread in brackets;
*ours* has the mean over the seeds that were run and, in brackets, the standard deviation over these
where there are two or more, or over clients where the paper has that. The *difference* is ours less
the published one. Settings were taken from the texts; what these leave open, and where we depart
from them, is said at each table.
"""


def text(several: Sequence[Table], place: Place) -> str:
    """The whole page."""
    done = all_done(several, place)
    stretched = estimates.seen(done)
    parts = [HEAD, _totals(several, done, stretched)]
    parts += [section(table, done, stretched) for table in several]
    return "\n".join(parts)


def all_done(several: Sequence[Table], place: Place) -> dict[Cell, dict[str, Any]]:
    """The cells that are done, and what is kept of them."""
    every = ((cell, place.done(cell)) for table in several for cell in table.cells())
    return {cell: found for cell, found in every if found is not None}


def _totals(
    several: Sequence[Table], done: Mapping[Cell, Mapping[str, Any]], stretched: Mapping[str, float]
) -> str:
    """What was run where, and what all the rest would take."""
    devices: dict[str, list[Cell]] = {}
    for cell, found in done.items():
        devices.setdefault(found["device"], []).append(cell)
    lines = []
    for device, cells in sorted(devices.items()):
        minutes = sum(done[cell]["seconds"] / done[cell]["at_once"] for cell in cells) / 60
        took = f"{minutes:.0f} minutes of it"
        if "core" in device:
            on_gpu = sum(estimates.seconds(cell, stretched) for cell in cells) / 60
            took = f"{minutes / 60:.1f} hours; estimated at {on_gpu:.0f} minutes of one GPU"
        lines.append(f"{len(cells)} on {device} ({took})")
    every = [cell for table in several for cell in table.cells()]
    left = [cell for cell in every if cell not in done]
    minutes = sum(estimates.seconds(cell, stretched) for cell in left) / 60
    ran = "; ".join(lines) or "none"
    return (
        f"Of {len(every)} runs {len(done)} are done: {ran}. The other {len(left)} were not run; "
        f"they are estimated at {minutes:,.0f} minutes of one GPU, one run after another "
        "([how](../../benchmarks/papers/estimates.py): from the steps of training and the time of "
        "one, which is a guess for models that were not run on a GPU).\n"
    )


def section(
    table: Table, done: Mapping[Cell, Mapping[str, Any]], stretched: Mapping[str, float]
) -> str:
    """One table: its lines, where they differ and why, and what was not run."""
    file = f"[{table.name}.toml](../../benchmarks/papers/tables/{table.name}.toml)"
    lines = [f"## {table.title}", "", f"{file}: {table.source}", ""]
    lines += [f"- {remark}" for remark in table.remarks]
    lines += [f"- {group.label}: {group.remark}." for group in table.groups if group.remark]
    lines.append("")
    rows = [row for group in table.groups for row in _rows(table, group, done)]
    if rows:
        head = ("data", "method", "figure", "published", "ours", "difference", "seeds", "on")
        lines += [_line(head), _line(["---"] * len(head)), *map(_line, rows), ""]
    picture = pictures.file_of(table)
    if rows and picture.is_file():
        lines += [f"![{table.title}](../pictures/{picture.name})", ""]
    lines += [f"- {each}" for each in table.differs] + ([""] if table.differs else [])
    lines += _not_run(table, done, stretched)
    return "\n".join(lines)


def _rows(table: Table, group: Group, done: Mapping[Cell, Mapping[str, Any]]) -> list[list[str]]:
    rows = []
    for name in group.published:
        row = table.row(name)
        cells = [done.get(table.cell(group, row, seed)) for seed in group.seeds]
        found = [cell for cell in cells if cell is not None]
        if not found:
            continue
        devices = ", ".join(sorted({cell["device"] for cell in found}))
        for i, column in enumerate(table.columns):
            known = published(table, group, name, i)
            ours = values(column, found)
            if not ours and known is None:
                continue
            mean = statistics.fmean(ours) if ours else None
            difference = (
                f"{mean - known[0]:+.{column.digits}f}" if mean is not None and known else ""
            )
            shown = _shown(mean, spread(column, found, ours), column) if mean is not None else "–"
            paper = _shown(*known, column) if known else "–"
            seeds = str(len(found)) if len(found) == len(cells) else f"{len(found)} of {len(cells)}"
            rows.append(
                [group.label, row.label, column.label, paper, shown, difference, seeds, devices]
            )
    return rows


def values(column: Column, found: Sequence[Mapping[str, Any]]) -> list[float]:
    """The figure of each seed, in the unit of the column."""
    each = [cell["figures"].get(column.name) for cell in found]
    return [column.scale * value for value in each if is_figure(value)]


def spread(
    column: Column, found: Sequence[Mapping[str, Any]], ours: Sequence[float]
) -> float | None:
    """Over clients (the mean over seeds of that), or over seeds."""
    if column.spread == "clients":
        each = [cell["figures"].get(f"{column.name}_std") for cell in found]
        given = [column.scale * value for value in each if is_figure(value)]
        return statistics.fmean(given) if given else None
    return statistics.stdev(ours) if len(ours) > 1 else None


def _shown(value: float, of_spread: float | None, column: Column) -> str:
    said = f"{value:.{column.digits}f}"
    return said if of_spread is None else f"{said} ({of_spread:.{column.digits}f})"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _not_run(
    table: Table, done: Mapping[Cell, Mapping[str, Any]], stretched: Mapping[str, float]
) -> list[str]:
    lines = []
    for group in table.groups:
        left: dict[str, list[Cell]] = {}
        for cell in table.cells():
            if cell.group == group.name and cell not in done:
                left.setdefault(cell.row, []).append(cell)
        if not left:
            continue
        cells = [cell for each in left.values() for cell in each]
        minutes = sum(estimates.seconds(cell, stretched) for cell in cells) / 60
        whole = len(left) == len(group.published)
        rows = "all rows" if whole else ", ".join(table.row(name).label for name in left)
        runs = f"{len(cells)} run{'s' * (len(cells) > 1)}"
        lines.append(f"- {group.label}: {rows}; {runs}, about {minutes:.0f} GPU minutes")
    return ["Not run:", "", *lines, ""] if lines else []


def in_a_line(table: Table, found: Mapping[str, Any]) -> str:
    """The figures of one cell, beside what they are called."""
    told = []
    for column in table.columns:
        if ours := values(column, [found]):
            told.append(f"{column.label} {ours[0]:.{column.digits}f}")
    return ", ".join(told)
