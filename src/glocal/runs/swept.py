"""What came of a sweep: a row for each cell, and means over seeds."""

from __future__ import annotations

import csv
import io
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from glocal.core import notebooks
from glocal.experiment.result_files import SCHEMA
from glocal.experiment.run import frame

if TYPE_CHECKING:
    from pandas import DataFrame

FIGURES = (
    *("validation", "mean", "worst10", "best10", "gini", "local_mean"),
    *("benefit", "benefit_low", "benefit_high", "better_off", "worse_off", "same", "undecided"),
    *("params_up", "params_down", "bytes_up", "bytes_down", "gradient_evaluations"),
)
"""What is taken from a run's summary."""

AVERAGED = ("validation", "mean", "worst10", "benefit", "better_off", "worse_off")
"""Of these the table has the mean over seeds."""


@dataclass(frozen=True)
class Sweep:
    """What came of a sweep: a row for each cell."""

    varied: tuple[str, ...]
    """The settings that differ between cells."""
    rows: list[dict[str, Any]]
    """For each cell its method, its varied settings, and the figures of its summary."""
    metric: str = "accuracy"
    """What counts."""
    lower: bool = False
    """Whether lower is better."""

    def over_seeds(self) -> list[dict[str, Any]]:
        """A row for each method and combination: means, and standard deviations, over seeds.

        The best of each method on validation data (ties: the first) is ``chosen``: test
        data has no say in it.
        """
        found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        kept = [name for name in ("method", *self.varied) if name != "seed"]
        for row in self.rows:
            found.setdefault(tuple(same_value(row[name]) for name in kept), []).append(row)
        rows = []
        order = list(dict.fromkeys(row["method"] for row in self.rows))
        for cells in sorted(found.values(), key=lambda cells: order.index(cells[0]["method"])):
            row = {name: cells[0][name] for name in kept} | {"seeds": len(cells)}
            for name in AVERAGED:
                values = [cell[name] for cell in cells if cell[name] is not None]
                row[name] = statistics.fmean(values) if len(values) == len(cells) else None
                if name in ("validation", "mean"):
                    row[f"{name}_sd"] = statistics.stdev(values) if len(values) > 1 else None
            row["diverged"] = sum(cell["diverged"] for cell in cells)
            rows.append(row)
        for method in {row["method"] for row in rows}:
            of_method = [r for r in rows if r["method"] == method and r["validation"] is not None]
            sign = -1 if self.lower else 1
            best = max(of_method, key=lambda r: sign * r["validation"], default=None)
            for row in rows:
                if row["method"] == method:
                    row["chosen"] = row is best
        return rows

    def to_frame(self) -> DataFrame:
        """The cells as a pandas DataFrame."""
        return frame(self.rows)

    def to_csv(self) -> str:
        """The cells as text, a line each."""
        text = io.StringIO()
        names = ["method", *self.varied, *FIGURES, "diverged", "failed"]
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return text.getvalue()

    def result(self) -> dict[str, Any]:
        """What ``--json`` writes."""
        return {
            "schema": SCHEMA,
            "metric": self.metric,
            "varied": list(self.varied),
            "cells": self.rows,
            "over_seeds": self.over_seeds(),
        }

    def _repr_html_(self) -> str | None:
        """In a notebook, the table that the command shows."""
        return notebooks.html(self)


def same_value(value: Any) -> Any:
    """A value that can be looked up."""
    return tuple(value) if isinstance(value, list) else value
