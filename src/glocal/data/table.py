"""Tables: named columns of one length, from a DataFrame, a dict of columns or a file."""

from __future__ import annotations

import re
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
        counted: str = "line",
        text: bool = False,
        decimal: str | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self.columns = dict(columns)
        self.lines = lines
        """The line of each row in its file; the header is line 1. None: rows count from 0."""
        self.counted = counted
        """What ``lines`` counts: lines, or rows."""
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
        return f"row {row}" if self.lines is None else f"{self.counted} {self.lines[row]}"

    def with_columns(self, names: Iterable[str]) -> Table:
        """The same table with these columns only."""
        return self._with({name: self.columns[name] for name in names}, self.lines, self.counted)

    def with_rows(self, rows: Sequence[int]) -> Table:
        """The same table with these rows only, which are called what they were."""
        lines = rows if self.lines is None else [self.lines[row] for row in rows]
        columns = {name: values[rows] for name, values in self.columns.items()}
        return self._with(columns, lines, "row" if self.lines is None else self.counted)

    def _with(self, columns: dict[str, Array], lines: Sequence[int] | None, counted: str) -> Table:
        return Table(
            columns,
            lines,
            counted=counted,
            text=self.text,
            decimal=self.decimal,
            notes=self.notes,
        )

    def ids(self, name: str, what: str) -> Array:
        """A column of clients, groups or labels: integers, or words as they are written.

        "NA" and the like are no class and no client: they are missing, as an empty cell is. Blanks
        around a word are no part of it.
        """
        values = column(self, name, what)
        if self.text:
            return as_written(["" if cell in WORD_GAPS else cell for cell in values.tolist()])
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
    names = list(x.columns if names is None else names)
    checked_names([str(name) for name in names])
    return [(name, x[name]) for name in names]


def checked_names(names: Sequence[str], whose: str = "the table") -> None:
    """Raise if a name occurs twice."""
    if len(set(names)) < len(names):
        name = next(name for i, name in enumerate(names) if name in names[:i])
        raise GlocalError(
            f"{whose} names a column twice, {shown(name)}: give each column its own name."
        )


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


INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
"""An integer as it is usually written: with zeros in front, as in "007", it is a name."""


def as_written(cells: Sequence[str]) -> Array:
    """Cells as integers if all are, so that they are in the order of numbers; else as they are."""
    if all(INTEGER.fullmatch(cell) for cell in set(cells)):
        return np.array([int(cell) for cell in cells])
    return np.array(cells)


def as_numbers(words: Array) -> Array:
    """Labels that are text as numbers, if all are: "1.0", but not "01", which is a name."""
    if any(cell[:1] == "0" and cell.isdecimal() and len(cell) > 1 for cell in set(words.tolist())):
        return words
    for kind in (int, float):
        try:
            # One "NA" among numbers is a gap to be named, not a reason to take them for words.
            return np.array([kind("nan" if is_gap(c) else c) for c in words.tolist()])
        except (ValueError, OverflowError):
            pass
    return words


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
