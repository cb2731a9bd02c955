"""Tables of given width: where a row does not fit it takes two lines, and long texts are folded.

Widths are counted in cells of a terminal, of which some letters take two. What is not folded is not
cut either: nothing is lost.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

GAP = "  "
INDENT = "  "
NARROWEST = 10
"""Of a column that is folded."""

Cell = str | tuple[str, str]
"""Text, or text and a colour."""

Paint = Callable[[str, str], str]
"""A text and its colour as the terminal wants them."""


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


def plainly(text: str, colour: str) -> str:
    """No colours."""
    return text


def lay_out(
    columns: Sequence[Column],
    rows: Sequence[Sequence[Cell]],
    width: int | None,
    paint: Paint = plainly,
) -> list[str]:
    """The lines of a table, its head first."""
    from rich.cells import cell_len

    head = [column.name for column in columns]
    sizes = [max(cell_len(_text(row[i])) for row in [head, *rows]) for i in range(len(columns))]
    every = list(range(len(columns)))
    lines = [every]
    if width is not None and sum(sizes) + len(GAP) * (len(columns) - 1) > width:
        lines = [[i for i in every if columns[i].line == n] for n in (0, 1)]
    for n, line in enumerate(lines):
        if width is not None:
            _narrow(columns, sizes, line, width - (len(INDENT) if n else 0))
    return [
        text
        for row in [head, *rows]
        for n, line in enumerate(lines)
        if line
        for text in _row(columns, row, sizes, line, INDENT if n else "", paint)
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
    found: list[str] = []
    for start in range(0, len(labels), many):
        part = slice(start, start + many)
        columns = [Column(name, text=True), *(Column(label, text=text) for label in labels[part])]
        lines = lay_out(columns, [[k, *v[part]] for k, v in rows.items()], width)
        found += [*([""] if found else []), *lines]
    return found


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
    paint: Paint,
) -> list[str]:
    from rich.cells import cell_len, chop_cells

    parts = [chop_cells(_text(row[i]), sizes[i]) or [""] for i in line]
    found = []
    for k in range(max(map(len, parts))):
        cells = []
        for i, part in zip(line, parts, strict=True):
            shown = part[k] if k < len(part) else ""
            space = " " * (sizes[i] - cell_len(shown))
            cell = row[i]
            coloured = shown if isinstance(cell, str) else paint(shown, cell[1])
            cells.append(coloured + space if columns[i].text else space + coloured)
        found.append((indent + GAP.join(cells)).rstrip())
    return found


def _text(cell: Cell) -> str:
    text = cell if isinstance(cell, str) else cell[0]
    # What comes from a file may hold what moves a terminal's cursor.
    return "".join(c if c.isprintable() else "�" for c in text)
