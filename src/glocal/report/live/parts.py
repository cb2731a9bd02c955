"""What the pages share: addresses, states with their bars, cells of tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from glocal.report.page.markup import Html, join, tag
from glocal.report.tables import Cell
from glocal.runs.listing import printable


def quoted(path: str) -> str:
    """A path whatever its bytes are, as letters that any page can hold."""
    return quote(path, errors="surrogateescape")


def shown(text: str) -> str:
    """A text from a file as it can be shown: no end of line, no halves of letters."""
    return printable(Path(text)) if text else ""


def link(kind: str, path: str, here: str) -> Html:
    """A name that leads to its page; ``here`` is that of the folder itself."""
    return tag(
        "a", tag("bdi", here if path == "." else shown(path)), href=f"/{kind}/{quoted(path)}"
    )


def progress(state: str, done: int = 0, asked: int = 0, problem: str | None = None) -> Html:
    """A state in a word, and a bar of the rounds that are done, while these are not all."""
    parts = [tag("span", state, class_=f"is {state.split()[0]}")]
    if state in ("running", "stopped") and asked:
        words = f"round {done} of {asked}"
        parts.append(tag("progress", words, value=min(done, asked), max=asked, aria_label=words))
        parts.append(tag("small", words))
    if problem:
        parts.append(tag("small", shown(problem)))
    return join(*(each for part in parts for each in (part, " ")))


def texts(cells: Sequence[Cell]) -> list[Html]:
    """The cells of a terminal's row: numbers that can be sorted, and texts."""
    return [_text(cell if isinstance(cell, str) else cell[0]) for cell in cells]


def _text(cell: str) -> Html:
    """A number says which, and a text turns no other's direction."""
    try:
        return tag("data", cell, value=float(cell.replace(",", "")))
    except ValueError:
        return tag("bdi", shown(cell))
