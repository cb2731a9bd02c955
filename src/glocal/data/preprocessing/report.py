"""The column report: what became of each column of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

LONGEST_NAME = 28
MOST_ROWS = 30
"""The rows that are printed; a table of more has its plain columns counted instead."""


@dataclass(frozen=True)
class ColumnReport:
    """What one column was and what became of it."""

    column: str
    was: str
    became: str
    missing: int = 0
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    """Sentences about what may not be meant: they are printed when the table is loaded, too."""

    def to_json(self) -> dict[str, Any]:
        """The row as JSON holds it."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}


def rendered(rows: Sequence[ColumnReport]) -> str:
    """The report as lines of text, compact; ``!`` marks columns with a warning."""
    shown, more = list(rows), ""
    if len(shown) > MOST_ROWS:
        by_interest = sorted(shown, key=lambda r: not (r.missing or r.notes or r.warnings))
        chosen = set(map(id, by_interest[:MOST_ROWS]))
        shown = [row for row in rows if id(row) in chosen]
        more = f"\n  … and {len(rows) - len(shown)} columns more"
    cells = [("column", "was", "became", "missing")]
    for row in shown:
        became = "; ".join([row.became, *row.notes])
        name = row.column if len(row.column) <= LONGEST_NAME else f"{row.column[:27]}…"
        mark = " !" if row.warnings else ""
        cells.append((" ".join(name.split()) + mark, row.was, became, str(row.missing or "")))
    widths = [max(len(line[i]) for line in cells) for i in range(3)]
    lines = [
        "  ".join(["", *(c.ljust(w) for c, w in zip(line, widths, strict=False)), line[3]]).rstrip()
        for line in cells
    ]
    return "\n".join(lines) + more
