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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from glocal.core.errors import GlocalError, shown
from glocal.data import validation as check
from glocal.data.preprocessing import cells, doubts
from glocal.data.preprocessing.doubts import Meant
from glocal.data.table import WORD_GAPS, Table, is_gap
from glocal.data.validation import Array

NUMBER, DATE, CATEGORY = "number", "date", "category"

TRUE_OR_FALSE = "true or false"
"""The format of text that is true or false, in upper or lower case."""

PLAIN_LETTERS = re.compile(r"[0-9+\-.eEna]*")
"""What Python reads as a number and is of these letters is a plain number, or "nan"."""


@dataclass(frozen=True, eq=False)
class RawColumn:
    """A column as numbers: values, days since 1970, or the positions of its words; NaN: missing."""

    name: str
    kind: str
    format: str
    """The decimal mark of numbers in text and their unit (".", ",", ". kg"), or how dates are
    written; true or false; ``""``: none of these is text."""
    values: Array
    words: tuple[str, ...]
    """The words of a category, sorted."""
    was: str
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    meant: Meant | None = None
    """What words seem to be meant as, such as numbers."""

    @property
    def missing(self) -> int:
        """How many cells say nothing."""
        return int(np.isnan(self.values).sum())

    @property
    def dates(self) -> bool:
        """Whether these are dates, or words that seem to be meant as dates."""
        return self.kind == DATE or (self.meant is not None and self.meant.what == "dates")


def recognised(table: Table, name: str) -> RawColumn:
    """What a column holds, found from its cells, with warnings about what it may be instead."""
    raw = _recognised(table, name)
    if raw.kind != NUMBER:
        return raw
    doubtful = doubts.number_warnings(name, raw.values, table.where)
    return replace(raw, warnings=(*raw.warnings, *doubtful))


def _recognised(table: Table, name: str) -> RawColumn:
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
        return _numbers(table, name, floats, boolean=all(isinstance(v, bool) for v in present))
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


def _numbers(table: Table, name: str, values: Array, *, boolean: bool = False) -> RawColumn:
    floats = finite(values.astype(np.float64), name, table.where)
    if boolean or values.dtype.kind == "b":
        return RawColumn(name, NUMBER, TRUE_OR_FALSE, floats, (), TRUE_OR_FALSE)
    return RawColumn(name, NUMBER, "", floats, (), "numbers")


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

    Numbers with a unit and true or false are numbers wherever they come from; other text in a
    DataFrame is no number, as "007" may be a code there.
    """
    if table.text and table.decimal != "," and (plain := _plain_numbers(text)) is not None:
        return RawColumn(name, NUMBER, ".", finite(plain, name, table.where), (), "numbers")
    # Each distinct cell is looked at once: most tables have far fewer of these than rows.
    present = {cell for cell in set(text) if cell is not None and not is_gap(cell)}
    if not present:
        return _words(table, name, text)
    if all(cell.lower() in cells.TRUTH for cell in present):
        values = _looked_up({cell: cells.TRUTH[cell.lower()] for cell in present}, text)
        return RawColumn(name, NUMBER, TRUE_OR_FALSE, values, (), TRUE_OR_FALSE)
    if table.text and not cells.codes_with_zeros(present):
        mark = cells.decimal_mark(present, table.decimal)
        if mark is not None:
            return _numbers_in_text(table, name, text, present, mark)
    found = cells.unit_of(present, table.decimal)
    if found is not None:
        return _with_unit(table, name, text, present, found)
    how = cells.date_format(present)
    if how:
        values = _looked_up({cell: cells.days(cell, how) for cell in present}, text)
        return RawColumn(name, DATE, how, values, (), "dates", (how,))
    return _words(table, name, text)


def _numbers_in_text(
    table: Table, name: str, text: list[str | None], present: set[str], mark: str
) -> RawColumn:
    """A column of which all cells are numbers with this decimal mark."""
    values = _looked_up({cell: cells.number(cell, mark) for cell in present}, text)
    notes = ("decimal commas",) if mark == "," and any("," in c for c in present) else ()
    warnings = []
    padded = next((i for i, c in enumerate(text) if c and cells.LEADING_ZERO.fullmatch(c)), None)
    if padded is not None:
        warnings.append(
            f"column {shown(name)} has zeros in front of numbers, such as {shown(text[padded])} in "
            f"{table.where(padded)}, and was read as numbers: leave it out (drop=) if they are "
            "codes."
        )
    floats = finite(values, name, table.where)
    return RawColumn(name, NUMBER, mark, floats, (), "numbers", notes, tuple(warnings))


def _looked_up(by_cell: Mapping[str, float | None], text: list[str | None]) -> Array:
    """The number of each cell; NaN for those that have none."""
    return np.array([*map(by_cell.get, text)], np.float64)  # type: ignore[arg-type]


def _plain_numbers(text: list[str | None]) -> Array | None:
    """The numbers of a column without decimal commas and zeros in front of them; else None.

    Most columns of numbers are like this, and this takes a fraction of the time.
    """
    filled = [cell or "nan" for cell in text]  # an empty cell is missing
    if not PLAIN_LETTERS.fullmatch("".join(filled)):
        return None
    if any(cell[0] == "0" and cell.isdecimal() and len(cell) > 1 for cell in filled):
        return None
    try:
        values = np.fromiter(map(float, filled), np.float64, len(filled))
    except ValueError:
        return None
    return None if np.isnan(values).all() else values


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


def _words(table: Table, name: str, text: list[str | None]) -> RawColumn:
    vocabulary = tuple(sorted({w for w in set(text) if w is not None and w not in WORD_GAPS}))
    check.writable(vocabulary, f"the word of column {shown(name)},")
    values = _looked_up({word: float(i) for i, word in enumerate(vocabulary)}, text)
    warnings = (
        *doubts.case_warnings(name, vocabulary),
        *doubts.code_warnings(table, name, text),
    )
    return RawColumn(
        *(name, CATEGORY, "", values, vocabulary, "words", (), warnings),
        meant=doubts.meant_as(table, name, text),
    )


def converted(table: Table, name: str, kind: str, form: str) -> tuple[Array, list[str | None]]:
    """The cells of a column whose kind is known: numbers, or the words of a category.

    A cell that does not fit the kind is an error; None and NaN are missing.
    """
    raw = table[name].tolist() if table[name].dtype.kind in "OUS" else None
    if kind == NUMBER and table.decimal is not None and form != TRUE_OR_FALSE:
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
                raise _wrong(name, _held(kind, form), f"holds {table[name].dtype}")
        values = _recognised(table, name).values
        if form == TRUE_OR_FALSE:
            _refuse_no_truth(table, name, values)
        return values, []
    out = np.empty(table.rows)
    for i, cell in enumerate(raw):
        value = _as_plain(cell, name, table, i)
        if check.missing(value) or (isinstance(value, str) and is_gap(value.strip())):
            out[i] = math.nan
            continue
        found = _of_kind(value, kind, form)
        if found is None:
            raise _wrong(name, _held(kind, form), f"{table.where(i)} has {shown(value)}")
        out[i] = found
    return finite(out, name, table.where), []


def _of_kind(value: Any, kind: str, form: str) -> float | None:
    if form == TRUE_OR_FALSE:
        return _truth(value)
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


def _truth(value: Any) -> float | None:
    """True or false as 1 or 0, which are taken for these, too; None: it is neither."""
    if isinstance(value, str):
        text = value.strip().lower()
        value = cells.TRUTH.get(text, cells.number(text, "."))
    return float(value) if isinstance(value, numbers.Real) and value in (0, 1) else None


def _refuse_no_truth(table: Table, name: str, values: Array) -> None:
    """Raise where numbers are given for true or false and one is neither 1 nor 0."""
    bad = ~np.isnan(values) & (values != 0) & (values != 1)
    if bad.any():
        row = int(bad.nonzero()[0][0])
        raise _wrong(name, TRUE_OR_FALSE, f"{table.where(row)} has {values[row]:g}")


def _held(kind: str, form: str) -> str:
    """What a column held in training, for a message."""
    if form == TRUE_OR_FALSE:
        return TRUE_OR_FALSE
    has_unit = kind == NUMBER and form[1:2] == " "
    return f"{kind}s in{form[1:]}" if has_unit else f"{kind}s"


def _wrong(name: str, held: str, what: str) -> GlocalError:
    return GlocalError(
        f"column {shown(name)} should hold {held}, as in training, and {what}: correct it, or "
        "leave the cell empty."
    )
