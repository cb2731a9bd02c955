"""A sweep as one table: every method at every combination, and which was chosen."""

from __future__ import annotations

from typing import Any

from glocal.evaluation.measures import SHARES
from glocal.report.tables import Cell, html, number, plural, show_table
from glocal.report.units import Unit, unit_of
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
    unit = unit_of(
        {
            "metric": swept.metric,
            "lower_is_better": swept.lower,
            "task": None if swept.metric in SHARES else "numbers",
            "mean": next((row["mean"] for row in rows if row["mean"] is not None), None),
        }
    )
    head = ["method", *of_settings, f"validation {unit.heading}", f"mean {unit.heading}"]
    head += ["worst 10 %", "vs alone"]
    head += ["better off", "worse off", "chosen"]
    several = max(row["seeds"] for row in rows)
    legend = [
        f"{plural(len(swept.rows), 'cell')}"
        + (f", means over {several} seeds ± their standard deviation" if several > 1 else "")
        + f". Validation: clients' mean {unit.name} on validation data, by which the best of each "
        f"method is chosen; the other figures are of test data, and vs alone in "
        f"{unit.of_differences} above what each client has by itself."
    ]
    if diverged := sum(row["diverged"] for row in rows):
        legend.append(
            f"In {plural(diverged, 'cell')} (marked *) a client's training was not finite in some "
            "round, and it sat that out; where there are no figures, nobody's was finite."
        )
    return head, [_row(row, of_settings, unit) for row in rows], legend, 1 + len(of_settings)


def _row(row: dict[str, Any], of_settings: list[str], unit: Unit) -> list[Cell]:
    style = "bold" if row["chosen"] else ""
    mark = " *" if row["diverged"] else ""
    cells = [
        row["method"] + mark,
        *(_value(row[name]) for name in of_settings),
        _with_sd(row, "validation", unit),
        _with_sd(row, "mean", unit),
        unit.value(row["worst10"]),
        unit.difference(row["benefit"]),
        number(row["better_off"]),
        number(row["worse_off"]),
        "yes" if row["chosen"] else "",
    ]
    return [(cell, style) for cell in cells] if style else list(cells)


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _with_sd(row: dict[str, Any], name: str, unit: Unit) -> str:
    text, sd = unit.value(row[name]), row[f"{name}_sd"]
    return text if sd is None else f"{text} ± {unit.value(sd)}"
