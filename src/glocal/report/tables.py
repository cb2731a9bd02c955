"""Tables as text or HTML, and the cells and sentences that they share: per cent, points, counts.

They are coloured on a terminal and as wide as it is, plain in a pipe. Where a row does not fit,
headings break at spaces or the row takes two lines, and long texts are folded. Widths are counted
in cells of a terminal, of which some letters take two. What is not folded is not cut either:
nothing is lost.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import zip_longest
from textwrap import wrap
from typing import Any

from glocal.evaluation.verdict import ENOUGH

GAP = "  "
INDENT = "  "
NARROWEST = 10
"""Of a column that is folded."""

CODES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33}
"""A terminal's number for each word of a colour such as ``bold red``."""

STYLES = {"bold": "font-weight: bold", "dim": "opacity: 0.6"}
"""The words of a colour that are none, as CSS."""

Cell = str | tuple[str, str]
"""Text, or text and a colour."""

WIDEST = 20
"""How many names a sentence lists before it counts the rest."""


@dataclass(frozen=True)
class Column:
    """A column: its heading, whether it is text (on the left, may be folded), and its line."""

    name: str
    text: bool = False
    line: int = 0
    """Where a row takes two lines: 0 the upper, 1 the lower."""


def width() -> int | None:
    """Columns of the terminal, or as ``COLUMNS`` says; None in a pipe, where all fits."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        return shutil.get_terminal_size().columns
    return None


def painted(text: str, colour: str) -> str:
    """Add a terminal's codes for a colour, unless the output is none or asks for no colours."""
    if not colour or not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return "".join(f"\x1b[{CODES[word]}m" for word in colour.split()) + f"{text}\x1b[0m"


def table(head: Sequence[str], rows: Sequence[Sequence[Cell]], *, left: int = 1) -> None:
    """Print a table; the first ``left`` columns are text, the others numbers."""
    columns = [Column(name, text=i < left) for i, name in enumerate(head)]
    for line in lay_out(columns, rows, width() if sys.stdout.isatty() else None):
        print(line)


def show_table(
    head: Sequence[str], rows: Sequence[Sequence[Cell]], *legend: str, left: int = 1
) -> None:
    """Print a table, and below it what it shows."""
    print()
    table(head, rows, left=left)
    print()
    paragraphs(*legend)


def html(head: Sequence[str], rows: Sequence[Sequence[Cell]], *legend: str, left: int = 1) -> str:
    """A table and what it shows, as HTML; all text is escaped, since names come from files."""
    aligned = ["left" if i < left else "right" for i in range(len(head))]

    def line(tag: str, cells: Sequence[Cell]) -> str:
        styled = (
            f'<{tag} style="text-align: {side}{_style(cell)}">{escape(_text(cell))}</{tag}>'
            for cell, side in zip(cells, aligned, strict=True)
        )
        return f"<tr>{''.join(styled)}</tr>"

    body = "\n".join(line("td", row) for row in rows)
    below = "".join(f"\n<p>{escape(text)}</p>" for text in legend)
    return f"<table>\n<thead>{line('th', head)}</thead>\n<tbody>\n{body}\n</tbody>\n</table>{below}"


def _style(cell: Cell) -> str:
    """A cell's colour, as CSS after another property."""
    words = [] if isinstance(cell, str) else cell[1].split()
    return "".join(f"; {STYLES.get(word, f'color: {word}')}" for word in words)


def paragraphs(*texts: str) -> None:
    """Print each text by itself, in lines of 100 characters."""
    for text in texts:
        for line in wrap(text, 100):
            print(line)


def lay_out(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int | None
) -> list[str]:
    """The lines of a table, its head first."""
    from rich.cells import cell_len

    head = [column.name for column in columns]
    body = [max((cell_len(_text(row[i])) for row in rows), default=0) for i in range(len(columns))]
    sizes = [max(size, cell_len(name)) for size, name in zip(body, head, strict=True)]
    heads, lines = [head], [list(range(len(columns)))]
    if width is not None and sum(sizes) + len(GAP) * (len(columns) - 1) > width:
        if any(column.line for column in columns):
            lines = [[i for i in lines[0] if columns[i].line == n] for n in (0, 1)]
        else:
            sizes = [
                max([size, *map(cell_len, name.split())])
                for size, name in zip(body, head, strict=True)
            ]
            broken = [wrap(name, max(1, size)) for name, size in zip(head, sizes, strict=True)]
            heads = [list(row) for row in zip_longest(*broken, fillvalue="")]
    for n, line in enumerate(lines):
        if width is not None:
            _narrow(columns, sizes, line, width - (len(INDENT) if n else 0))
    return [
        text
        for row in [*heads, *rows]
        for n, line in enumerate(lines)
        if line
        for text in _row(columns, row, sizes, line, INDENT if n else "")
    ]


def side_by_side(
    name: str,
    labels: Sequence[str],
    rows: dict[str, Sequence[str]],
    width: int | None,
    *,
    text: bool,
) -> list[str]:
    """A row for each name and a column for each label; several tables where they do not fit."""
    from rich.cells import cell_len

    first = max(map(cell_len, [name, *rows]))
    widest = max(cell_len(v) for values in rows.values() for v in values)
    each = min(widest, 2 * NARROWEST) + len(GAP)
    many = len(labels) if width is None else max(1, (width - first) // each)
    tables: list[str] = []
    for start in range(0, len(labels), many):
        part = slice(start, start + many)
        columns = [Column(name, text=True), *(Column(label, text=text) for label in labels[part])]
        lines = lay_out(columns, [[k, *v[part]] for k, v in rows.items()], width)
        tables += [*([""] if tables else []), *lines]
    return tables


def _narrow(columns: Sequence[Column], sizes: list[int], line: list[int], width: int) -> None:
    """Fold the widest texts until the line fits, or nothing more can be folded."""
    room = width - len(GAP) * (len(line) - 1)
    while sum(sizes[i] for i in line) > room:
        texts = [i for i in line if columns[i].text and sizes[i] > NARROWEST]
        if not texts:
            return
        sizes[max(texts, key=lambda i: sizes[i])] -= 1


def _row(
    columns: Sequence[Column],
    row: Sequence[Cell],
    sizes: Sequence[int],
    line: Sequence[int],
    indent: str,
) -> list[str]:
    from rich.cells import cell_len, chop_cells

    parts = [chop_cells(_text(row[i]), sizes[i]) or [""] for i in line]
    lines = []
    for k in range(max(map(len, parts))):
        cells = []
        for i, part in zip(line, parts, strict=True):
            shown = part[k] if k < len(part) else ""
            space = " " * (sizes[i] - cell_len(shown))
            cell = row[i]
            coloured = shown if isinstance(cell, str) else painted(shown, cell[1])
            cells.append(coloured + space if columns[i].text else space + coloured)
        lines.append((indent + GAP.join(cells)).rstrip())
    return lines


def _text(cell: Cell) -> str:
    text = cell if isinstance(cell, str) else cell[0]
    # What comes from a file may hold what moves a terminal's cursor.
    return "".join(c if c.isprintable() else "�" for c in text)


def number(value: float | None, *, scale: float = 1, digits: int = 1, sign: str = "") -> str:
    """``93.1``, or a dash where there is no value."""
    if value is None or math.isnan(value):
        return "–"
    return f"{scale * value:{sign}.{digits}f}"


def percent(value: float | None) -> str:
    """A share in per cent."""
    return number(value, scale=100)


def points(value: float | None) -> str:
    """A difference in percentage points, with its sign."""
    return number(value, scale=100, sign="+")


def span(low: float | None, high: float | None) -> str:
    """An interval's ends, in percentage points; a dash where there are none."""
    if low is None and high is None:
        return "–"
    return f"{points(low)} … {points(high)}"


def interval(d: Mapping[str, Any]) -> Cell:
    """A difference in points and its ends, if it has any; coloured if they leave zero out."""
    ends = "" if d["low"] is None else f" ({span(d['low'], d['high'])})"
    return points(d["difference"]) + ends, sign_colour(d)


def sign_colour(d: Mapping[str, Any]) -> str:
    """The colour of a difference whose interval is above zero, below, or around it."""
    if d["low"] is None:
        return ""
    return "green" if d["low"] > 0 else "bold red" if d["high"] < 0 else "dim"


def with_half(
    value: Mapping[str, Any], of: str = "mean", scale: float = 100, digits: int = 1, sign: str = ""
) -> str:
    """``93.1 ± 0.8``: a mean and half of its symmetric interval, if it has one."""
    center, high = value[of], value["high"]
    text = number(center, scale=scale, digits=digits, sign=sign)
    half = None if high is None else number(high - center, scale=scale, digits=digits)
    return text if half is None else f"{text} ± {half}"


def verdict(word: str | None, text: str | None = None) -> Cell:
    """A verdict, or another text that has one, in its colour; those that say nothing are dim."""
    if word is None:
        return "–"
    colours = {"better": "green", "worse": "bold red"}
    return text or word, colours.get(word.removesuffix(" off"), "dim")


def count(n: int | None, word: str) -> Cell:
    """How many clients got a verdict, coloured if there are any; a dash without a baseline."""
    if n is None:
        return "–"
    return verdict(word, str(n)) if n else "0"


def short(value: float | None) -> str:
    """``8.97 M`` for 8,970,000, or a dash where there is no value."""
    if value is None:
        return "–"
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


def how_shown(repeats: int) -> str:
    """By what clients are called better or worse off, from so many repeats."""
    if repeats < ENOUGH:
        return "by an exact paired test at 90 % of these trained models"
    return "by a 90 % interval that covers test examples and the luck of training"


def where_tested(summary: Mapping[str, Any], whose: str = "all clients'") -> str:
    """The test examples on which each client's model was evaluated."""
    pooled = summary["estimate"] == "pooled"
    return f"{whose} test examples, by its label shares" if pooled else "its own test split"
