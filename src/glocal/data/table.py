"""Tables: named columns of one length, from a DataFrame, a dict of columns or a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from glocal.core.errors import LONGEST, GlocalError, shown
from glocal.data import validation as check
from glocal.data.validation import Array


class Table(Mapping[str, Array]):
    """Columns by name, and what a row is called in a message."""

    def __init__(
        self,
        columns: Mapping[str, Array],
        lines: Sequence[int] | None = None,
        *,
        text: bool = False,
        decimal: str | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self.columns = dict(columns)
        self.lines = lines
        """The line of each row in its file; the header is line 1. None: rows count from 0."""
        self.text = text
        """Whether all cells are text, as in a .csv file, so that numbers are to be found."""
        self.decimal = decimal
        """The decimal mark of numbers in text, where somebody said so."""
        self.notes = tuple(notes)
        """What was found out about the file, such as its encoding."""

    def __getitem__(self, name: str) -> Array:
        return self.columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return max((len(column) for column in self.columns.values() if column.ndim), default=0)

    def where(self, row: int) -> str:
        """What a row is called in a message: its line in the file, or its index."""
        return f"row {row}" if self.lines is None else f"line {self.lines[row]}"

    def with_columns(self, names: Iterable[str]) -> Table:
        """The same table with these columns only."""
        return Table(
            {name: self.columns[name] for name in names},
            self.lines,
            text=self.text,
            decimal=self.decimal,
            notes=self.notes,
        )

    def ids(self, name: str, what: str) -> Array:
        """A column of labels, clients or groups: integers, numbers or words.

        "NA" and the like are no class and no client: they are missing, as an empty cell is. Blanks
        around a word are no part of it.
        """
        values = column(self, name, what)
        if self.text:
            return typed(["" if cell in WORD_GAPS else cell for cell in values.tolist()])
        if values.dtype.kind not in "OU":
            return values
        listed = [v.strip() if isinstance(v, str) else v for v in values.tolist()]
        return np.array(
            [*(None if isinstance(v, str) and v in WORD_GAPS else v for v in listed), None],
            dtype=object,
        )[:-1]


def is_table(x: Any) -> bool:
    """Whether ``x`` has named columns. A DataFrame is recognised without importing pandas."""
    if isinstance(x, Mapping) or type(x).__name__ == "LazyFrame":
        return True
    return hasattr(x, "columns") and hasattr(x, "__getitem__")


def as_table(x: Any) -> Table:
    """A DataFrame or a dict of columns as a table; all columns have one length."""
    if isinstance(x, Table):
        table = x
    else:
        table = Table({str(name): _as_column(values, name) for name, values in _columns_of(x)})
    if not table or table.rows == 0:
        raise GlocalError("the table has no rows: give at least three examples for each client.")
    check.writable(table, "the column")
    for name, values in table.items():
        if values.shape != (table.rows,):
            raise GlocalError(
                f"column {shown(name)} has shape {values.shape} in a table of {table.rows} rows: "
                "give one value for each row."
            )
    return table


def _columns_of(x: Any) -> list[tuple[Any, Any]]:
    """The names and columns of a dict, a DataFrame, or a table of pyarrow."""
    if type(x).__name__ == "LazyFrame":
        raise GlocalError("a LazyFrame has no rows yet: give what its collect() returns.")
    names = x if isinstance(x, Mapping) else getattr(x, "column_names", None)
    return [(name, x[name]) for name in (x.columns if names is None else names)]


def _as_column(values: Any, name: Any) -> Array:
    array = check.as_array(values, f"column {name!r}")
    if array.ndim == 1 and array.dtype.kind in "US" and isinstance(values, list | tuple):
        # numpy makes text of numbers that are beside text: what they were is not lost.
        return np.array([*values, None], dtype=object)[:-1]
    return array


def column(table: Mapping[str, Array], name: str, what: str) -> Array:
    """One column, or an error that lists the columns there are."""
    if name not in table:
        raise GlocalError(
            f"no column {shown(name)} to take {what} from: the columns are {listed(table)}."
        )
    return table[name]


def listed(names: Iterable[str]) -> str:
    """The names of the first columns, for a message."""
    every = list(names)
    more = f" and {len(every) - 20} more" if len(every) > 20 else ""
    return ", ".join(name[:LONGEST] for name in every[:20]) + more


def typed(cells: Sequence[str]) -> Array:
    """Labels, clients or groups that are text, as integers, as numbers, or as words."""
    try:
        return np.array([int(cell) for cell in cells])
    except (ValueError, OverflowError):
        pass
    try:
        # One "NA" among numbers is a gap to be named, not a reason to take them all for words.
        return np.array([np.nan if is_gap(cell) else float(cell) for cell in cells])
    except ValueError:
        return np.array(cells)


GAPS = frozenset(
    ("", "na", "n/a", "nan", "null", "none", "?", "-", "--", ".", "#n/a", "nat", "<na>")
)
"""Cells among numbers and dates that mark a missing value, in lower case."""

WORD_GAPS = frozenset(("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "?", "#N/A", "<NA>"))
"""Cells among words that mark a missing value: "none" and "-" may be words."""


def is_gap(cell: str) -> bool:
    """Whether a cell of a column of numbers says nothing."""
    return cell.lower() in GAPS


def named_columns(names: Sequence[str], table: Mapping[str, Array], option: str) -> list[str]:
    """The columns that an option names; several may be in one text, with commas between them."""
    if isinstance(names, str):
        names = (names,)
    found: list[str] = []
    for given in names:
        parts = [given] if given in table else [part.strip() for part in str(given).split(",")]
        for part in parts:
            if part not in table:
                raise GlocalError(
                    f"{option}= names {shown(part)}, which is no column: the columns are "
                    f"{listed(table)}."
                )
            found.append(part)
    return list(dict.fromkeys(found))
