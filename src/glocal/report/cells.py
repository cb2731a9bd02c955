"""Cells and sentences that tables share: per cent, points, intervals, counts, lists of names."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from glocal.report.tables import Cell, table

WIDEST = 20
"""How many names a sentence lists before it counts the rest."""

COLOUR = {
    "better off": "green",
    "worse off": "bold red",
    "better": "green",
    "worse": "bold red",
    "undecided": "dim",
    "not shown": "dim",
}
"""The colour of each verdict."""


def number(value: float | None, *, scale: float = 1, digits: int = 1, sign: str = "") -> str:
    """``93.1``, or a dash where there is no value."""
    return "–" if value is None else f"{scale * value:{sign}.{digits}f}"


def percent(value: float | None) -> str:
    """A share in per cent."""
    return number(value, scale=100)


def points(value: float | None) -> str:
    """A difference in percentage points, with its sign."""
    return number(value, scale=100, sign="+")


def span(low: float, high: float) -> str:
    """An interval's ends, in percentage points."""
    return f"{points(low)} … {points(high)}"


def interval(d: Mapping[str, Any]) -> Cell:
    """A difference in points and its ends, if it has any; coloured if they leave zero out."""
    if d["low"] is None:
        return points(d["difference"])
    return f"{points(d['difference'])} ({span(d['low'], d['high'])})", sign_colour(d)


def sign_colour(d: Mapping[str, Any]) -> str:
    """The colour of a difference whose interval is above zero, below, or around it."""
    return "green" if d["low"] > 0 else "bold red" if d["high"] < 0 else "dim"


def with_half(mean: float, high: float | None, scale: float = 100, digits: int = 1) -> str:
    """``93.1 ± 0.8``: a mean and half of its symmetric interval, if it has one."""
    text = number(mean, scale=scale, digits=digits)
    return text if high is None else f"{text} ± {number(high - mean, scale=scale, digits=digits)}"


def verdict(word: str) -> Cell:
    """A verdict in its colour."""
    return word, COLOUR[word]


def count(n: int, verdict: str) -> Cell:
    """How many clients got a verdict, coloured if there are any."""
    return (str(n), COLOUR[verdict]) if n else "0"


def short(value: int) -> str:
    """``8.97 M`` for 8,970,000."""
    rest = float(value)
    for unit in ("", " k", " M", " G"):
        if rest < 1000:
            return f"{rest:.3g}{unit}"
        rest /= 1000
    return f"{rest:.3g} T"


def some(names: Sequence[str], widest: int = WIDEST) -> str:
    """The first names of a list, and how many more there are."""
    more = f" and {len(names) - widest} more" if len(names) > widest else ""
    return ", ".join(names[:widest]) + more


def plural(n: int, word: str) -> str:
    """``1 round``, ``2 rounds``."""
    return f"{n} {word}{'' if n == 1 else 's'}"


def where_tested(summary: Mapping[str, Any], whose: str = "all clients'") -> str:
    """The test examples on which each client's model was evaluated."""
    pooled = summary["estimate"] == "pooled"
    return f"{whose} test examples, by its label shares" if pooled else "its own test split"


def show_table(
    head: Sequence[str], rows: Sequence[Sequence[Cell]], *legend: str, left: int = 1
) -> None:
    """Print a table, and below it what it shows."""
    print()
    table(head, rows, left=left)
    print()
    paragraphs(*legend)


def paragraphs(*texts: str) -> None:
    """Print each text by itself, in lines of 100 characters."""
    for text in texts:
        for line in textwrap.wrap(text, 100):
            print(line)
