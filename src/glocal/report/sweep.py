"""A sweep as one table: every method at every combination, and which was chosen."""

from __future__ import annotations

from typing import Any

from glocal.report.tables import Cell, html, number, plural, points, show_table
from glocal.runs.swept import Sweep


def show(swept: Sweep) -> None:
    """Print it."""
    head, rows, legend, left = _table(swept)
    show_table(head, rows, *legend, left=left)


def html_of(swept: Sweep) -> str:
    """The same for a notebook."""
    head, rows, legend, left = _table(swept)
    return html(head, rows, *legend, left=left)


def _table(swept: Sweep) -> tuple[list[str], list[list[Cell]], list[str], int]:
    of_settings = [name for name in swept.varied if name != "seed"]
    rows = swept.over_seeds()
    head = ["method", *of_settings, "validation %", "mean %", "worst 10 %", "vs alone"]
    head += ["better off", "worse off", "chosen"]
    several = max(row["seeds"] for row in rows)
    legend = [
        f"{plural(len(swept.rows), 'cell')}"
        + (f", means over {several} seeds ± their standard deviation" if several > 1 else "")
        + ". Validation: clients' mean accuracy on validation data, by which the best of each "
        "method is chosen; the other figures are of test data, and vs alone in points above "
        "the same model that each client trains by itself."
    ]
    if diverged := sum(row["diverged"] for row in rows):
        legend.append(
            f"In {plural(diverged, 'cell')} (marked *) a client's training was not finite in some "
            "round, and it sat that out; where there are no figures, nobody's was finite."
        )
    return head, [_row(row, of_settings) for row in rows], legend, 1 + len(of_settings)


def _row(row: dict[str, Any], of_settings: list[str]) -> list[Cell]:
    style = "bold" if row["chosen"] else ""
    mark = " *" if row["diverged"] else ""
    cells = [
        row["method"] + mark,
        *(_value(row[name]) for name in of_settings),
        _with_sd(row, "validation"),
        _with_sd(row, "mean"),
        number(row["worst10"], scale=100),
        points(row["benefit"]),
        number(row["better_off"]),
        number(row["worse_off"]),
        "yes" if row["chosen"] else "",
    ]
    return [(cell, style) for cell in cells] if style else list(cells)


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _with_sd(row: dict[str, Any], name: str) -> str:
    text, sd = number(row[name], scale=100), row[f"{name}_sd"]
    return text if sd is None else f"{text} ± {number(sd, scale=100)}"
