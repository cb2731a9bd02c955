"""What a column holds: numbers, words or dates; and its cells as numbers.

That is decided on all cells of a column, as whoever owns the table would. Everything that is
*fitted* comes from training rows (:mod:`glocal.data.preprocessing.fitting`).
"""

from __future__ import annotations

import datetime
import decimal
import math
import numbers
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from glocal.core.errors import GlocalError, shown
from glocal.data import validation as check
from glocal.data.preprocessing import cells
from glocal.data.table import WORD_GAPS, Table, is_gap
from glocal.data.validation import Array

NUMBER, DATE, CATEGORY = "number", "date", "category"

LOOKS_NUMERIC = 0.5
"""The share of words that begin with a number from which a column seems to be meant as numbers."""


@dataclass(frozen=True, eq=False)
class RawColumn:
    """A column as numbers: values, days since 1970, or the positions of its words; NaN: missing."""

    name: str
    kind: str
    format: str
    """The decimal mark of numbers in text, or how dates are written; ``""``: neither is text."""
    values: Array
    words: tuple[str, ...]
    """The words of a category, sorted."""
    was: str
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    is_integer: bool = False

    @property
    def missing(self) -> int:
        """How many cells say nothing."""
        return int(np.isnan(self.values).sum())


def recognised(table: Table, name: str) -> RawColumn:
    """What a column holds, found from its cells."""
    values = table[name]
    if values.dtype.kind in "biuf":
        return _numbers(table, name, values)
    if values.dtype.kind in "mM":
        return _times(table, name, values)
    if values.dtype.kind not in "OUS":
        raise GlocalError(
            f"column {shown(name)} holds {values.dtype}, which is neither numbers, words nor "
            "dates: leave it out (drop=), or convert it."
        )
    if table.text:
        return _text(table, name, values.tolist())
    listed = [_as_plain(v, name, table, i) for i, v in enumerate(values.tolist())]
    present = [v for v in listed if not check.missing(v)]
    if present and all(isinstance(v, numbers.Real) for v in present):
        floats = check.as_floats(np.array([math.nan if check.missing(v) else v for v in listed]))
        integer = all(isinstance(v, int) for v in present)
        return _numbers(table, name, floats, integer=integer)
    if present and all(isinstance(v, datetime.date) for v in present):
        floats = np.array([math.nan if check.missing(v) else cells.days_of(v) for v in listed])
        return RawColumn(name, DATE, "", floats, (), "dates")
    return _text(table, name, [None if check.missing(v) else str(v).strip() for v in listed])


def _as_plain(value: Any, name: str, table: Table, row: int) -> Any:
    """A cell as Python's own number, date or text; an error for a list or a record."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, decimal.Decimal):
        return float(value) if value.is_finite() else math.nan
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list | tuple | set | dict | np.ndarray):
        raise GlocalError(
            f"column {shown(name)} has {shown(value)} in {table.where(row)}: give one value a cell."
        )
    return value


def _numbers(table: Table, name: str, values: Array, *, integer: bool = False) -> RawColumn:
    floats = finite(values.astype(np.float64), name, table.where)
    was = "true or false" if values.dtype.kind == "b" else "numbers"
    return RawColumn(
        name, NUMBER, "", floats, (), was, is_integer=integer or values.dtype.kind in "iu"
    )


def _times(table: Table, name: str, values: Array) -> RawColumn:
    if values.dtype.kind == "m":
        floats = values.astype("timedelta64[us]").astype(np.float64) / (1e6 * cells.DAY)
        floats[np.isnat(values)] = math.nan
        return RawColumn(name, NUMBER, "", floats, (), "durations", ("in days",))
    floats = values.astype("datetime64[us]").astype(np.float64) / (1e6 * cells.DAY)
    floats[np.isnat(values)] = math.nan
    return RawColumn(name, DATE, "", floats, (), "dates")


def finite(values: Array, name: str, where: Callable[[int], str]) -> Array:
    """The numbers, none of them infinite in float32; NaN is missing."""
    with np.errstate(over="ignore", invalid="ignore"):
        bad = np.isinf(values.astype(np.float32))
    if bad.any():
        raise GlocalError(
            f"column {shown(name)} is not finite (infinite, or too large) in "
            f"{where(int(bad.nonzero()[0][0]))}: correct the value, or leave that row out."
        )
    return values


def _text(table: Table, name: str, text: list[str | None]) -> RawColumn:
    """A column of text: numbers if it comes from a text file and all are, dates, or words."""
    if table.text and table.decimal != ",":
        plain = _plain_numbers(text)
        if plain is not None:
            joined = "".join(cell or "" for cell in text).lower()
            integer = not ("." in joined or "e" in joined)
            values = finite(plain, name, table.where)
            return RawColumn(name, NUMBER, ".", values, (), "numbers", is_integer=integer)
    distinct = {cell for cell in text if cell is not None and not is_gap(cell)}
    mark = cells.decimal_mark(distinct, table.decimal) if table.text and distinct else None
    if mark is not None:
        floats = np.array(
            [math.nan if c is None or is_gap(c) else _number(c, mark) for c in text], np.float64
        )
        notes = ("decimal commas",) if mark == "," and any("," in c for c in distinct) else ()
        integer = all(c.lstrip("+-").isdecimal() for c in distinct)
        return RawColumn(
            *(name, NUMBER, mark, finite(floats, name, table.where), (), "numbers", notes),
            is_integer=integer,
        )
    how = cells.date_format(distinct) if distinct else None
    if how:
        by_cell = {cell: cells.days(cell, how) for cell in distinct}
        floats = np.array(
            [math.nan if c is None or is_gap(c) else by_cell[c] for c in text], np.float64
        )
        return RawColumn(name, DATE, how, floats, (), "dates", (how,))
    warnings = []
    if how == "":
        warnings.append(
            f"column {shown(name)} holds dates of which day and month cannot be told apart, so it "
            "was read as words: write them as 2026-01-31."
        )
    return _words(table, name, text, warnings)


def _plain_numbers(text: list[str | None]) -> Array | None:
    """The numbers of a column that has no decimal commas; none if one cell is no number.

    Most columns are like this, and this takes a fraction of the time.
    """
    filled = ["nan" if cell is None or is_gap(cell) else cell for cell in text]
    if all(cell == "nan" for cell in filled):
        return None
    try:
        return np.array(filled, dtype=object).astype(np.float64)
    except ValueError:
        return None


def _number(cell: str, mark: str) -> float:
    value = cells.number(cell, mark)
    return math.nan if value is None else value


def _words(
    table: Table, name: str, text: list[str | None], warnings: list[str] | None = None
) -> RawColumn:
    words = [None if cell is None or cell in WORD_GAPS else cell for cell in text]
    counts = Counter(word for word in words if word is not None)
    vocabulary = tuple(sorted(counts))
    check.writable(vocabulary, f"the word of column {shown(name)},")
    position = {word: float(i) for i, word in enumerate(vocabulary)}
    values = np.array([math.nan if w is None else position[w] for w in words], np.float64)
    said = list(warnings or [])
    if not said and vocabulary:
        said += _meant_as_numbers(table, name, counts, words)
    return RawColumn(name, CATEGORY, "", values, vocabulary, "words", (), tuple(said))


def _meant_as_numbers(
    table: Table, name: str, counts: Counter[str], words: list[str | None]
) -> list[str]:
    """A warning where numbers became words."""
    numeric, total, example = cells.looks_numeric(counts.items())
    if numeric < LOOKS_NUMERIC * total:
        return []
    if cells.is_ambiguous(counts):
        remedy = "say decimal=',' or decimal='.'"
    elif numeric < total:
        example = min(w for w in counts if not cells.BEGINS_WITH_A_NUMBER.fullmatch(w))
        remedy = "if it is meant as numbers, give numbers only and leave missing cells empty"
    else:
        remedy = "if it is meant as numbers, give numbers without units or signs"
    return [
        f"column {shown(name)} looks like numbers, but {shown(example)} in "
        f"{table.where(words.index(example))} is none, so it was read as words: {remedy}."
    ]


def converted(table: Table, name: str, kind: str, form: str) -> tuple[Array, list[str | None]]:
    """The cells of a column whose kind is known: numbers, or the words of a category.

    A cell that does not fit the kind is an error; None and NaN are missing.
    """
    raw = table[name].tolist() if table[name].dtype.kind in "OUS" else None
    if kind == CATEGORY:
        listed = table[name].tolist() if raw is None else raw
        plain = [_as_plain(v, name, table, i) for i, v in enumerate(listed)]
        words = [None if check.missing(v) else str(v).strip() for v in plain]
        return np.empty(0), [None if word in WORD_GAPS else word for word in words]
    if raw is None:
        if (table[name].dtype.kind in "biuf") != (kind == NUMBER):
            known = table[name].dtype.kind == "m" and kind == NUMBER
            if not (known or (table[name].dtype.kind == "M" and kind == DATE)):
                raise _wrong(name, kind, f"holds {table[name].dtype}")
        return recognised(table.with_columns([name]), name).values, []
    out = np.empty(table.rows)
    for i, cell in enumerate(raw):
        value = _as_plain(cell, name, table, i)
        if check.missing(value) or (isinstance(value, str) and is_gap(value.strip())):
            out[i] = math.nan
            continue
        found = _of_kind(value, kind, form)
        if found is None:
            raise _wrong(name, kind, f"{table.where(i)} has {shown(value)}")
        out[i] = found
    return finite(out, name, table.where), []


def _of_kind(value: Any, kind: str, form: str) -> float | None:
    if isinstance(value, str):
        if kind == NUMBER:
            return cells.number(value.strip(), form or ".")
        formats = (form,) if form else cells.DATE_FORMATS[:1]
        return next(
            (d for how in formats if (d := cells.days(value.strip(), how)) is not None), None
        )
    if kind == DATE:
        return cells.days_of(value) if isinstance(value, datetime.date) else None
    return float(check.as_floats(np.array([value]))[0]) if isinstance(value, numbers.Real) else None


def _wrong(name: str, kind: str, what: str) -> GlocalError:
    return GlocalError(
        f"column {shown(name)} should hold {kind}s, as in training, and {what}: correct it, or "
        "leave the cell empty."
    )
