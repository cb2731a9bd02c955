"""What a column holds: numbers, words or dates; and its cells as numbers.

That is decided by how all cells of a column are written, those of test rows, too: a cell has to be
read in one way, whichever split its row is in, and how it is written says nothing of the labels.
Everything that is *fitted* comes from training rows (:mod:`glocal.data.preprocessing.fitting`).
"""

from __future__ import annotations

import datetime
import decimal
import math
import numbers
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
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

PLAIN_LETTERS = re.compile(r"[0-9+\-.eEna]*")
"""What Python reads as a number and is of these letters is a plain number, or "nan"."""


@dataclass(frozen=True, eq=False)
class RawColumn:
    """A column as numbers: values, days since 1970, or the positions of its words; NaN: missing."""

    name: str
    kind: str
    format: str
    """The decimal mark of numbers in text and their unit (".", ",", ". kg"), or how dates are
    written; ``""``: neither is text."""
    values: Array
    words: tuple[str, ...]
    """The words of a category, sorted."""
    was: str
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    is_integer: bool = False
    meant_as_numbers: tuple[str, str] | None = None
    """Of words that look like numbers: why they are none, and what to do about it."""

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
    """A column of text: numbers if it comes from a text file and all are, dates, or words.

    Numbers with a unit are numbers wherever they come from; other text in a DataFrame is no number,
    as "007" may be a code there.
    """
    if table.text and table.decimal != "," and (plain := _plain_numbers(text)) is not None:
        values, integer = finite(plain[0], name, table.where), plain[1]
        return RawColumn(name, NUMBER, ".", values, (), "numbers", is_integer=integer)
    # Each distinct cell is looked at once: most tables have far fewer of these than rows.
    present = {cell for cell in set(text) if cell is not None and not is_gap(cell)}
    mark = cells.decimal_mark(present, table.decimal) if table.text and present else None
    if mark is not None:
        by_cell = {cell: cells.number(cell, mark) for cell in present}
        values = finite(_looked_up(by_cell, text), name, table.where)
        notes = ("decimal commas",) if mark == "," and any("," in c for c in present) else ()
        integer = all(cell.lstrip("+-").isdecimal() for cell in present)
        return RawColumn(name, NUMBER, mark, values, (), "numbers", notes, is_integer=integer)
    found = cells.unit_of(present, table.decimal) if present else None
    if found is not None:
        return _with_unit(table, name, text, present, found)
    how = cells.date_format(present) if present else None
    if how:
        values = _looked_up({cell: cells.days(cell, how) for cell in present}, text)
        return RawColumn(name, DATE, how, values, (), "dates", (how,))
    warnings = []
    if how == "":
        warnings.append(
            f"column {shown(name)} holds dates of which day and month cannot be told apart, so it "
            "was read as words: write them as 2026-01-31."
        )
    return _words(table, name, text, warnings)


def _looked_up(by_cell: Mapping[str, float | None], text: list[str | None]) -> Array:
    """The number of each cell; NaN for those that have none."""
    return np.array([*map(by_cell.get, text)], np.float64)  # type: ignore[arg-type]


def _plain_numbers(text: list[str | None]) -> tuple[Array, bool] | None:
    """The numbers of a column without decimal commas, and if all are integers; else None.

    Most columns of numbers are like this, and this takes a fraction of the time.
    """
    filled = [cell or "nan" for cell in text]  # an empty cell is missing
    joined = "".join(filled)
    if not PLAIN_LETTERS.fullmatch(joined):
        return None
    try:
        values = np.fromiter(map(float, filled), np.float64, len(filled))
    except ValueError:
        return None
    integer = not any(letter in joined for letter in ".eE")
    return None if np.isnan(values).all() else (values, integer)


def _with_unit(
    table: Table, name: str, text: list[str | None], present: set[str], found: tuple[str, str]
) -> RawColumn:
    """A column of which all cells are numbers with the same unit."""
    by_cell = {cell: cells.number_with(cell, *found) for cell in present}
    values = finite(_looked_up(by_cell, text), name, table.where)
    first = next(i for i, cell in enumerate(text) if cell in present)
    warning = (
        f"column {shown(name)} holds numbers with a unit, such as {shown(text[first])} in "
        f"{table.where(first)}, and was read as numbers in {shown(found[1])}: leave it out (drop=) "
        "if they are none."
    )
    mark, unit = found
    notes = (f"in {unit}",)
    return RawColumn(
        *(name, NUMBER, f"{mark} {unit}", values, (), "numbers with a unit", notes, (warning,))
    )


def case_warnings(name: str, words: Iterable[object]) -> list[str]:
    """A sentence, if words of a column differ only in upper and lower case."""
    pair = cells.differ_in_case(words)
    if pair is None:
        return []
    first, second = map(shown, pair)
    return [
        f"column {shown(name)} has words that differ in upper and lower case alone, such as "
        f"{first} and {second}, which are taken for different ones: write them alike if they are "
        "the same."
    ]


def _words(table: Table, name: str, text: list[str | None], warnings: list[str]) -> RawColumn:
    counts, dated = Counter(text), bool(warnings)
    for gap in (None, *WORD_GAPS):
        counts.pop(gap, None)
    words = {word: n for word, n in counts.items() if word is not None}
    vocabulary = tuple(sorted(words))
    warnings = [*warnings, *case_warnings(name, vocabulary)]
    check.writable(vocabulary, f"the word of column {shown(name)},")
    values = _looked_up({word: float(i) for i, word in enumerate(vocabulary)}, text)
    problem = None if dated or not words else _meant_as_numbers(table, name, words, text)
    return RawColumn(
        *(name, CATEGORY, "", values, vocabulary, "words", (), tuple(warnings)),
        meant_as_numbers=problem,
    )


def _meant_as_numbers(
    table: Table, name: str, counts: Mapping[str, int], text: list[str | None]
) -> tuple[str, str] | None:
    """Why words that look like numbers are none, and what to do about it."""
    numeric, total, example = cells.looks_numeric(counts.items())
    if numeric < LOOKS_NUMERIC * total:
        return None
    if cells.is_ambiguous(counts):
        remedy = "say decimal=',' or decimal='.'"
    elif numeric < total:
        example = min(w for w in counts if not cells.BEGINS_WITH_A_NUMBER.fullmatch(w))
        remedy = "if it is meant as numbers, give numbers only and leave missing cells empty"
    else:
        remedy = "if it is meant as numbers, give numbers without signs, and one unit or none"
    where = table.where(text.index(example))
    return (
        f"column {shown(name)} looks like numbers, but {shown(example)} in {where} is none",
        remedy,
    )


def converted(table: Table, name: str, kind: str, form: str) -> tuple[Array, list[str | None]]:
    """The cells of a column whose kind is known: numbers, or the words of a category.

    A cell that does not fit the kind is an error; None and NaN are missing.
    """
    raw = table[name].tolist() if table[name].dtype.kind in "OUS" else None
    if kind == NUMBER and table.decimal is not None:
        form = table.decimal + form[1:]  # somebody said how these rows are written
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
            with_unit = f" in{form[1:]}" if kind == NUMBER and len(form) > 1 else ""
            raise _wrong(name, kind, f"{table.where(i)} has {shown(value)}", with_unit)
        out[i] = found
    return finite(out, name, table.where), []


def _of_kind(value: Any, kind: str, form: str) -> float | None:
    if isinstance(value, str):
        if kind == NUMBER:
            mark, _, unit = form.partition(" ")
            return cells.number_with(value.strip(), mark or ".", unit)
        formats = (form,) if form else cells.DATE_FORMATS[:1]
        return next(
            (d for how in formats if (d := cells.days(value.strip(), how)) is not None), None
        )
    if kind == DATE:
        return cells.days_of(value) if isinstance(value, datetime.date) else None
    return float(check.as_floats(np.array([value]))[0]) if isinstance(value, numbers.Real) else None


def _wrong(name: str, kind: str, what: str, in_unit: str = "") -> GlocalError:
    return GlocalError(
        f"column {shown(name)} should hold {kind}s{in_unit}, as in training, and {what}: correct "
        "it, or leave the cell empty."
    )
