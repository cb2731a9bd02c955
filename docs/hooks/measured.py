"""What was measured of a method: the rows about it in README and ``docs/measurements/``.

How fast methods are is left out. A table is one of Markdown, or what a command printed, in a fence
whose first line names columns. A row is about a method if its column *method* (or the first) is
that method by itself, or has the component among others (``fedavg+median``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "measurements").glob("*.md"))]
LEFT_OUT = ("speed.md",)
FIRST = ("README.md", "personalisation.md", "fairness.md", "robustness.md", "adaptation.md")
"""The pages whose tables come first: those that set methods against being alone."""
HEADS = ("method", "component", "side by side")


class Excerpt(NamedTuple):
    """The rows of one table that are about a method."""

    page: str
    """The page's place in the repository."""
    title: str
    heading: str
    """The section; the page's title where there is none."""
    lines: list[str]
    """The head of the table and its rows, as Markdown."""

    @property
    def anchor(self) -> str:
        """The section's place in the page."""
        return slug(self.heading) if self.heading != self.title else ""


def slug(heading: str) -> str:
    """The anchor of a heading, as the site and repository browsers make it."""
    text = re.sub(r"[^\w\- ]", "", heading.replace("`", "").strip().lower())
    return text.replace(" ", "-")


def about(cell: str, name: str, component: bool) -> bool:
    """Whether a cell of a table is about this method or component."""
    parts = [re.split(r"[(\s,]", part.strip(" `"))[0] for part in re.split(r"\+(?![\d.])", cell)]
    return name in parts if component else parts == [name]


def excerpts(name: str, component: bool) -> list[Excerpt]:
    """All that was measured of it."""
    return [
        Excerpt(page, title, heading, lines)
        for page, title, heading, rows in TABLES
        if (lines := _rows_about(rows, name, component))
    ]


def _rows_about(rows: list[str], name: str, component: bool) -> list[str]:
    return (_markdown if rows[0].startswith("|") else _printed)(rows, name, component)


def _markdown(rows: list[str], name: str, component: bool) -> list[str]:
    head, rule, *body = rows
    columns = cells(head)
    where = next((i for i, column in enumerate(columns) if column in HEADS), 0)
    kept, last = [], [""] * len(columns)
    for row in body:
        given = cells(row)
        # An empty cell in front is that of the row above.
        filled = [c or (last[i] if i < where else "") for i, c in enumerate(given)]
        last = filled
        if about(filled[where], name, component):
            kept.append(f"| {' | '.join(filled)} |")
    return [head, rule, *kept] if kept else []


def _printed(rows: list[str], name: str, component: bool) -> list[str]:
    kept: list[str] = []
    inside = False
    for row in rows[1:]:
        if not row.startswith(" "):
            inside = about(re.split(r"\s{2,}", row)[0], name, component)
        if inside:
            kept.append(row)
    return ["````text", rows[0], *kept, "````"] if kept else []


def cells(row: str) -> list[str]:
    """The cells of a row of Markdown."""
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def _tables() -> Iterator[tuple[str, str, str, list[str]]]:
    in_order = {name: i for i, name in enumerate(FIRST)}
    pages = [path for path in PAGES if path.name not in LEFT_OUT]
    for path in sorted(pages, key=lambda path: in_order.get(path.name, len(FIRST))):
        lines = path.read_text(encoding="utf-8").splitlines()
        title = heading = lines[0].removeprefix("# ")
        block: list[str] = []
        fenced = False
        for line in [*lines, ""]:
            if line.startswith("```"):
                fenced = not fenced
            elif not fenced and re.match(r"#{2,3} ", line):
                heading = line.lstrip("# ")
            in_table = line.startswith("|") if not fenced else bool(line.strip("`").strip())
            if in_table and not line.startswith("```"):
                block.append(line)
                continue
            markdown = bool(block) and block[0].startswith("|") and path.name != "README.md"
            if len(block) > 2 and (markdown or block[0].split()[0] in HEADS):
                yield path.relative_to(ROOT).as_posix(), title, heading, block
            block = []


TABLES = list(_tables())
