"""Tables as text: coloured on a terminal and as wide as it is, plain in a pipe.

Where a row does not fit, headings break at spaces or the row takes two lines, and long texts are
folded. Widths are counted in cells of a terminal, of which some letters take two. What is not
folded is not cut either: nothing is lost.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from textwrap import wrap

GAP = "  "
INDENT = "  "
NARROWEST = 10
"""Of a column that is folded."""

CODES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33}
"""A terminal's number for each word of a colour such as ``bold red``."""

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
    """Leave colours out."""
    return text


def painted(text: str, colour: str) -> str:
    """Add a terminal's codes for a colour, unless the output is none or asks for no colours."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return "".join(f"\x1b[{CODES[word]}m" for word in colour.split()) + f"{text}\x1b[0m"


def table(head: Sequence[str], rows: Sequence[Sequence[Cell]], *, left: int = 1) -> None:
    """Print a table; the first ``left`` columns are text, the others numbers."""
    columns = [Column(name, text=i < left) for i, name in enumerate(head)]
    for line in lay_out(columns, rows, width() if sys.stdout.isatty() else None, painted):
        print(line)


def lay_out(
    columns: Sequence[Column],
    rows: Sequence[Sequence[Cell]],
    width: int | None,
    paint: Paint = plainly,
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
    paint: Paint,
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
            coloured = shown if isinstance(cell, str) else paint(shown, cell[1])
            cells.append(coloured + space if columns[i].text else space + coloured)
        lines.append((indent + GAP.join(cells)).rstrip())
    return lines


def _text(cell: Cell) -> str:
    text = cell if isinstance(cell, str) else cell[0]
    # What comes from a file may hold what moves a terminal's cursor.
    return "".join(c if c.isprintable() else "�" for c in text)
