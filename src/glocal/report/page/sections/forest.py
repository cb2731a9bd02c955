"""Differences with their intervals, a line each: of methods, of clients, of what one client has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from glocal.report.page import svg
from glocal.report.page.markup import Html, Place
from glocal.report.page.sections.common import VERDICTS, key, sign
from glocal.report.units import Unit

LONGEST = 17
"""Letters of a name that are drawn."""

NAMED = 60
"""Up to so many lines have their names beside them."""


@dataclass(frozen=True)
class Line:
    """A difference and its ends; ``tip`` says it in words."""

    name: str
    middle: float
    low: float
    high: float
    verdict: str | None
    tip: str
    pointer: str


def axis(unit: Unit) -> str:
    """What the benefit is counted in."""
    if unit.scale == 100:
        return f"points of {unit.name} above alone"
    return f"{unit.name} better than alone by" if unit.lower else f"{unit.name} above alone"


def shortened(name: str, letters: int = LONGEST) -> str:
    """A name that leaves room for the lines."""
    return name if len(name) <= letters else f"{name[: letters - 1]}…"


def beside(names: Sequence[str]) -> float:
    """Where lines begin, so that the longest name that is drawn has room beside them."""
    return 26.0 + 6.5 * max((len(shortened(name)) for name in names), default=0)


def tip(name: str, row: Place, unit: Unit, prefix: str = "") -> str:
    """What a mark says: the name, the estimate, its interval and the verdict."""
    value = row.value
    middle, low, high = (value[f"{prefix}{k}"] for k in ("estimate", "low", "high"))
    said = f"{name}: {unit.difference(middle)} ({unit.span(low, high)})"
    verdict = value.get(f"{prefix}verdict")
    return f"{said}, {verdict}" if verdict else said


def line(name: str, row: Place, unit: Unit, prefix: str = "") -> Line:
    """The line of a client's row."""
    value = row.value
    middle, low, high = (value[f"{prefix}{k}"] for k in ("estimate", "low", "high"))
    verdict = value.get(f"{prefix}verdict")
    return Line(name, middle, low, high, verdict, tip(name, row, unit, prefix), row.pointer)


def forest(
    name: str,
    title: str,
    lines: Sequence[Line],
    unit: Unit,
    *,
    about: str,
    note: str | None = None,
    keyed: bool = True,
) -> Html:
    """The figure: from the top, lines in the order given; ``keyed``: with a key of verdicts."""
    named = len(lines) <= NAMED
    step = 20.0 if named else max(2.0, min(6.0, 560 / len(lines)))
    left = beside([each.name for each in lines]) if named else 24.0
    bottom = 16 + step * len(lines)
    ends = [unit.scale * v for each in lines for v in (each.low, each.high)]
    x = svg.spanning(ends, left, svg.WIDTH - 12, zero=True)
    panel = svg.Panel(x, svg.Scale(0, len(lines), 14, bottom), bottom + 42)
    for value in x.ticks(6):
        at = x(value)
        panel.add(svg.line((at, 10), (at, bottom), "grid"))
        panel.add(svg.label(svg.plain(value), at, bottom + 17, "tick", anchor="middle"))
    panel.add(svg.line((x(0), 8), (x(0), bottom + 4), "zero"))
    middle = (left + svg.WIDTH - 12) / 2
    panel.add(svg.label(axis(unit), middle, bottom + 36, "name", anchor="middle"))
    size = 4.5 if named else max(1.4, step / 2.4)
    for i, each in enumerate(lines):
        y = 14 + step * (i + 0.5)
        kind = VERDICTS.get(each.verdict or "undecided", VERDICTS["undecided"])[1]
        low, high = (x(unit.scale * v) for v in (each.low, each.high))
        parts = [svg.line((low, y), (high, y), f"bar v-{kind}")]
        parts.append(sign(each.verdict, x(unit.scale * each.middle), y, size))
        if named:
            parts.insert(0, svg.label(shortened(each.name), left - 10, y + 4, "tick", anchor="end"))
        panel.add(svg.mark(each.tip, each.pointer, *parts))
    words = [each.verdict for each in lines if each.verdict]
    return svg.figure(name, panel, title, about, key=key(words) if keyed else (), note=note)
