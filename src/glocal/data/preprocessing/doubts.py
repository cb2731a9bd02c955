"""What a column may be meant as, where its cells do not say it: sentences about it.

They decide nothing but what is said: nothing here changes a feature.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from glocal.core.errors import shown
from glocal.data.preprocessing import cells
from glocal.data.table import Table, is_gap
from glocal.data.validation import Array

MOST = 0.5
"""The share of cells that look like numbers from which a column seems to be meant as numbers."""

SLIPS = 100
"""One in so many rows may be a slip."""

FEW = 20
"""In fewer rows than this, two columns may be alike by chance."""

NINES = re.compile(r"-?99+")
"""What stands for a missing value in many tables: −999, 9999."""

VERY_FAR = 20
"""A single number so many times farther from the others than these are apart may be such a mark."""

COMPACT_DATES = (1900_01_01, 2100_12_31)

MONTH = re.compile(r"(19|20)\d{2}[-/.](0?[1-9]|1[0-2]|W\d{2})|(0?[1-9]|1[0-2])[-/.](19|20)\d{2}")
SHORT_YEAR = re.compile(r"\d{1,2}([-/.])\d{1,2}\1\d{2}")
MONTH_BY_NAME = re.compile(
    r"(\d{1,2}[.\s-]*)?(jan|feb|mar|mär|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez)"
    r"[a-zäéû]*[.,\s-]+(\d{1,2},?\s+)?\d{2,4}",
    re.IGNORECASE,
)
TIME_OF_DAY = re.compile(r"\d{1,2}:\d{2}(:\d{2})?(\s*[ap]\.?m\.?)?", re.IGNORECASE)


@dataclass(frozen=True)
class Meant:
    """What words seem to be meant as, why they are not read so, and what to do about it."""

    what: str
    problem: str
    remedy: str
    why_left_out: str
    """Why a column of many such words is left out, in few words."""


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


def zero_warnings(name: str, words: Iterable[object]) -> list[str]:
    """A sentence, if two ids or labels are the same number, written in two ways ("01", "1")."""
    by_number: dict[float, str] = {}
    pairs: list[tuple[str, str]] = []
    for word in sorted({word for word in words if isinstance(word, str)}):
        value = cells.number(word, ".")
        other = word if value is None else by_number.setdefault(value, word)
        if other != word:
            pairs.append((other, word))
    if not pairs:
        return []
    more = len(pairs) - 1
    others = f" (and {more} more such pair{'s' * (more > 1)})" if more else ""
    return [
        f"column {shown(name)} has {shown(pairs[0][0])} and {shown(pairs[0][1])}{others}, which "
        "are taken for different ones: write them alike if they are the same."
    ]


def number_warnings(name: str, values: Array, where: Callable[[int], str]) -> list[str]:
    """Sentences about numbers that may be none: dates without dots, marks of missing values."""
    distinct, counts = np.unique(values[~np.isnan(values)], return_counts=True)
    low, high = COMPACT_DATES
    in_range = len(distinct) > 1 and low <= distinct[0] and distinct[-1] <= high
    if in_range and all(_is_compact_date(value) for value in distinct.tolist()):
        first = int((~np.isnan(values)).nonzero()[0][0])
        return [
            f"column {shown(name)} looks like dates, such as {values[first]:.0f} in "
            f"{where(first)}, and was read as numbers: write them as 2026-01-31, or leave it out "
            "(drop=)."
        ]
    ends = {0, len(distinct) - 1} if len(distinct) > 2 else set()
    marks = [i for i in sorted(ends) if NINES.fullmatch(f"{distinct[i]:.9g}")]
    others = np.delete(distinct, marks)
    sentences = []
    for i in marks:
        value, single = distinct[i], counts[i] == 1
        apart = (others[-1] - others[0]) * (VERY_FAR if single else 1)
        if np.abs(others - value).min() > apart:
            row = where(int((values == value).nonzero()[0][0]))
            rows = row if single else f"{counts[i]} rows, such as {row}"
            empty = "that cell empty if" if single else "those cells empty if"
            missing = "it is missing" if single else "they are missing"
            sentences.append(
                f"column {shown(name)} has {value:.9g} in {rows}, far from all other numbers "
                f"({others[0]:g} … {others[-1]:g}): leave {empty} it means that {missing}."
            )
    return sentences


def gives_label_away(values: Array, labels: Array, *, classes: bool) -> int | None:
    """In how many rows a column is not the label in other words; None: it is not that at all.

    It is, if each class has a value of its own there. A slip must not hide that, so one in
    :data:`SLIPS` rows may be an exception, of all and of each class, and so may classes with no
    more rows than that. Numbers are to be the same in another unit in all rows.
    """
    if len(labels) < FEW or np.isnan(values).any():
        return None
    if not classes:
        return 0 if _in_another_unit(values, labels) else None
    few = len(labels) // SLIPS
    distinct, rows_of = np.unique(labels, return_counts=True)
    known = np.unique(values)
    if len(known) > len(distinct) + few:
        return None
    value, label = np.searchsorted(known, values), np.searchsorted(distinct, labels)
    pairs, counts = np.unique(label * len(known) + value, return_counts=True)
    by_count = pairs[np.argsort(counts, kind="stable")]  # of each class, the most frequent is last
    usual_value, usual_label = np.empty(len(distinct), int), np.empty(len(known), int)
    usual_value[by_count // len(known)] = by_count % len(known)
    usual_label[by_count % len(known)] = by_count // len(known)
    exception = (usual_value[label] != value) | (usual_label[value] != label)
    of_class = np.bincount(label[exception], minlength=len(distinct))
    large = rows_of > few
    tolerable = large.sum() > 1 and bool((of_class <= rows_of // SLIPS)[large].all())
    total = int(exception.sum())
    return total if total == 0 or (total <= few and tolerable) else None


def _in_another_unit(values: Array, labels: Array) -> bool:
    low, high = int(labels.argmin()), int(labels.argmax())
    scale = (values[high] - values[low]) / (labels[high] - labels[low])
    apart = np.abs(values[low] + scale * (labels - labels[low]) - values).max()
    return bool(apart <= 1e-9 * abs(values[high] - values[low]) and scale != 0)


def _is_compact_date(value: float) -> bool:
    text = f"{value:.0f}"
    return value == int(value) and (
        cells.days(f"{text[:4]}-{text[4:6]}-{text[6:]}", "year-month-day") is not None
    )


def meant_as(table: Table, name: str, text: Sequence[str | None]) -> Meant | None:
    """What the words of a column seem to be meant as; None: as words."""
    column = f"column {shown(name)}"
    counts = Counter(cell for cell in text if cell is not None and not is_gap(cell))

    def at(cell: str) -> str:
        return f"{shown(cell)} in {table.where(text.index(cell))}"

    forms = {cell: _date_forms(cell) for cell in counts}
    if _most(counts, [cell for cell, form in forms.items() if form]):
        return _as_dates(column, forms, at)
    if _most(counts, [cell for cell in counts if cell.lower() in cells.TRUTH]):
        other = next(cell for cell in counts if cell.lower() not in cells.TRUTH)
        remedy = "write true or false, and leave missing cells empty, if it is meant as these"
        problem = f"{column} looks like true or false, but {at(other)} is neither"
        return Meant("true or false", problem, remedy, "not all are true or false")
    if _most(counts, times := [cell for cell in counts if TIME_OF_DAY.fullmatch(cell)]):
        remedy = "give hours or minutes as numbers, if they mean something"
        problem = f"{column} holds times of day, such as {at(times[0])}"
        return Meant("numbers", problem, remedy, "times of day")
    numeric = [cell for cell in counts if cells.LIKE_A_NUMBER.fullmatch(cell)]
    if not _most(counts, numeric) or cells.are_codes(counts, table.decimal):
        return None
    return _as_numbers(column, list(counts), at)


def code_warnings(table: Table, name: str, text: Sequence[str | None]) -> list[str]:
    """A sentence about words that are numbers, with zeros in front or in a DataFrame's text."""
    distinct = {cell for cell in set(text) if cell is not None and not is_gap(cell)}
    if not cells.are_codes(distinct, table.decimal):
        return []
    example = min(distinct)
    what, remedy = "numbers as text", "make numbers of them, unless they are codes"
    if cells.codes_with_zeros(distinct):
        what, remedy = "digits with zeros in front", "write them without these if they are numbers"
    return [
        f"column {shown(name)} holds {what}, such as {shown(example)} in "
        f"{table.where(text.index(example))}, and was read as words: {remedy}."
    ]


def _most(counts: Counter[str], some: Iterable[str]) -> bool:
    return bool(counts) and sum(counts[cell] for cell in some) >= MOST * counts.total()


def _date_forms(cell: str) -> frozenset[str]:
    """The forms in which a cell may be a date; none: it is no date."""
    if cell[:1].isdecimal():
        readable = [how for how in cells.DATE_FORMATS if cells.days(cell, how) is not None]
        if readable:
            return frozenset(readable)
        if SHORT_YEAR.fullmatch(cell):
            return frozenset(("a year of two digits",))
        if MONTH.fullmatch(cell):
            return frozenset(("a month",))
    return frozenset(("a month by name",)) if MONTH_BY_NAME.fullmatch(cell) else frozenset()


def _as_dates(column: str, forms: dict[str, frozenset[str]], at: Callable[[str], str]) -> Meant:
    remedy = "write them as 2026-01-31"
    example: dict[frozenset[str], str] = {}
    for cell, form in forms.items():
        example.setdefault(form, cell)
    if no_date := example.get(frozenset()):
        problem = f"{column} looks like dates, but {at(no_date)} is none"
        remedy = f"{remedy}, and leave missing cells empty"
        return Meant("dates", problem, remedy, "not all are dates")
    for (one, first), (other, second) in itertools.combinations(example.items(), 2):
        if not one & other:
            problem = f"{column} holds dates in several forms, such as {at(first)} and {at(second)}"
            return Meant("dates", problem, remedy, "dates in several forms")
    if all(len(form) > 1 for form in example):
        left_out = "dates of which day and month cannot be told apart"
        return Meant("dates", f"{column} holds {left_out}", remedy, left_out)
    left_out = "dates in a form that is not read"
    problem = f"{column} holds {left_out}, such as {at(next(iter(forms)))}"
    return Meant("dates", problem, remedy, left_out)


def _as_numbers(column: str, distinct: Sequence[str], at: Callable[[str], str]) -> Meant:
    others = [cell for cell in distinct if not cells.LIKE_A_NUMBER.fullmatch(cell)]
    signed = [cell for cell in distinct if not cells.PLAIN.fullmatch(cell)]
    problem = f"{column} looks like numbers, but {at(min(others or signed))} is none"
    remedy = (
        "if it is meant as numbers, give numbers without signs and blanks, and one unit or none"
    )
    if others:
        remedy = "if it is meant as numbers, give numbers only and leave missing cells empty"
    elif cells.is_ambiguous(distinct):
        problem = (
            f"{column} holds numbers whose decimal mark cannot be told, such as {at(min(signed))}"
        )
        remedy = "say decimal=',' or decimal='.'"
    return Meant("numbers", problem, remedy, "not all are numbers")
