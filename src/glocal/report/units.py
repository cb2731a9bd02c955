"""How a metric is written: in per cent, ×100, or in its own unit; and its differences."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from glocal.evaluation.measures import NAMES, SHARES
from glocal.evaluation.metrics import PERCENT
from glocal.report.tables import Cell, number, sign_colour


@dataclass(frozen=True)
class Unit:
    """How values of one metric are written."""

    metric: str
    lower: bool
    """Whether lower is better."""
    scale: float
    digits: int

    @property
    def name(self) -> str:
        """The metric in words."""
        return NAMES.get(self.metric, self.metric)

    @property
    def heading(self) -> str:
        """What follows "mean" in the head of a table."""
        if self.metric == "accuracy":
            return "%"
        return f"{self.name}{' %' if self.metric in PERCENT else ' ×100' * (self.scale == 100)}"

    @property
    def of_differences(self) -> str:
        """What a benefit is counted in."""
        if self.metric == "accuracy":
            return "points"
        return f"points of {self.name}" if self.scale == 100 else f"the {self.name}"

    def value(self, value: float | None) -> str:
        """A value; a dash where there is none."""
        missing = value is None or math.isnan(value)
        return number(None if missing else value, scale=self.scale, digits=self.digits)

    def difference(self, value: float | None) -> str:
        """A difference with its sign; above zero is better."""
        missing = value is None or math.isnan(value)
        return number(None if missing else value, scale=self.scale, digits=self.digits, sign="+")

    def span(self, low: float | None, high: float | None) -> str:
        """An interval's ends; a dash where there are none."""
        if low is None or math.isnan(low):
            return "–"
        return f"{self.difference(low)} … {self.difference(high)}"

    def interval(self, d: Mapping[str, Any]) -> Cell:
        """A difference and its ends, if it has any; coloured if they leave zero out."""
        ends = "" if d["low"] is None else f" ({self.span(d['low'], d['high'])})"
        return self.difference(d["difference"]) + ends, sign_colour(d)

    def tolerance(self, given: float | None) -> str:
        """The difference up to which a client counts as neither better nor worse off."""
        if given is not None:
            return (
                f"{self.scale * given:g} {self.of_differences if self.scale == 100 else ''}".strip()
            )
        return "5 % of what it has alone" if self.lower or self.scale == 1 else "2 points"


def unit_of(summary: Mapping[str, Any]) -> Unit:
    """How the metric that counts is written in this summary."""
    metric = summary.get("metric") or "accuracy"
    lower = bool(summary.get("lower_is_better"))
    if metric in SHARES:
        return Unit(metric, lower, 100, 1)
    if metric in NAMES and not summary.get("task"):
        return Unit(metric, lower, 1, 3)
    sizes = [abs(summary[k]) for k in ("mean", "local_mean") if summary.get(k)]
    size = max((s for s in sizes if math.isfinite(s) and s > 0), default=1.0)
    # Three digits that say something, whatever the label's unit is.
    return Unit(metric, lower, 1, max(0, 2 - math.floor(math.log10(size))))
