"""Numbers and dates in cells, as people write them."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterable

PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
COMMA = re.compile(r"[+-]?(\d+,?\d*|,\d+)([eE][+-]?\d+)?")
THOUSANDS_POINT = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+(,\d+)?")
THOUSANDS_COMMA = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?")
INFINITE = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)

BEGINS_WITH_A_NUMBER = re.compile(r"[<>≤≥~≈=]{0,2}\s*[+-]?\d+([.,]\d+)*\s*[^\d\s]?[^\d]{0,11}")
"""A number with a unit or a sign: "27.9 kg", "< 5", "12 %"."""

WITH_A_UNIT = re.compile(
    r"(?P<number>[+-]?[\d.,]*\d)(?:\s+(?P<after>[^\W\d_]\S{0,11})|\s*(?P<unit>[%‰°€$£]\S{0,11}"
    r"|[^\W\d_]{2}\S{0,10}))"
)
"""A number and its unit, as in "27.9 kg", "12%", "31 kg/m2"; "3b" may be the name of a ward."""

EPOCH = datetime.datetime(1970, 1, 1)
DAY = 86_400.0

TIME = (
    r"(?:[T ]+(?P<H>\d{1,2}):(?P<M>\d{2})(?::(?P<S>\d{2})(?P<f>\.\d+)?)?"
    r"\s*(?P<z>Z|[+-]\d{2}:?\d{2})?)?"
)
YEAR_FIRST = re.compile(r"(?P<y>\d{4})(?P<s>[-/.])(?P<m>\d{1,2})(?P=s)(?P<d>\d{1,2})" + TIME)
YEAR_LAST = re.compile(r"(?P<a>\d{1,2})(?P<s>[-/.])(?P<b>\d{1,2})(?P=s)(?P<y>\d{4})" + TIME)

DATE_FORMATS = ("year-month-day", "day-month-year", "month-day-year")


def number(cell: str, decimal: str) -> float | None:
    """The number in a cell with this decimal mark, or none; beyond float64 it is infinite."""
    if decimal == ",":
        if THOUSANDS_POINT.fullmatch(cell):
            cell = cell.replace(".", "")
        if COMMA.fullmatch(cell):
            return float(cell.replace(",", "."))
    else:
        if THOUSANDS_COMMA.fullmatch(cell):
            cell = cell.replace(",", "")
        if PLAIN.fullmatch(cell):
            return float(cell)
    return math.inf if INFINITE.fullmatch(cell) else None


def decimal_mark(cells: Iterable[str], said: str | None) -> str | None:
    """The decimal mark with which all cells are numbers, or none if there is none.

    Where both would do ("1,234"), nothing says which: such a column is no column of numbers, unless
    somebody says the mark.
    """
    distinct = set(cells)
    if said is not None:
        return said if all(number(cell, said) is not None for cell in distinct) else None
    if all(PLAIN.fullmatch(cell) or INFINITE.fullmatch(cell) for cell in distinct):
        return "."
    by_comma = all(number(cell, ",") is not None for cell in distinct)
    by_point = all(number(cell, ".") is not None for cell in distinct)
    return None if by_comma == by_point else "," if by_comma else "."


def is_ambiguous(cells: Iterable[str]) -> bool:
    """Whether all cells are numbers with either decimal mark, and not the same ones ("1,234")."""
    distinct = set(cells)
    return all(number(cell, mark) is not None for cell in distinct for mark in ",.")


def unit_of(cells: Iterable[str], said: str | None) -> tuple[str, str] | None:
    """The decimal mark and the unit with which all cells are numbers; None: there is no such."""
    numbers, units = set(), set()
    for cell in cells:
        match = WITH_A_UNIT.fullmatch(cell)
        if match is None:
            return None
        numbers.add(match["number"])
        units.add(match["after"] or match["unit"])
    mark = decimal_mark(numbers, said)
    return (mark, units.pop()) if mark is not None and len(units) == 1 else None


def number_with(cell: str, decimal: str, unit: str) -> float | None:
    """The number in a cell that ends in this unit, or none."""
    return number(cell.removesuffix(unit).rstrip(), decimal) if cell.endswith(unit) else None


def date_format(cells: Iterable[str]) -> str | None:
    """How all cells are dates, if they are; ``""`` if day and month cannot be told apart."""
    distinct = list(set(cells))
    if _all_dates(distinct, "year-month-day"):
        return "year-month-day"
    by_day = _all_dates(distinct, "day-month-year")
    by_month = _all_dates(distinct, "month-day-year")
    if by_day and by_month:
        # 31.01.2026 is written with points where the day comes first.
        pointed = all("." in cell for cell in distinct)
        return "day-month-year" if pointed else ""
    return "day-month-year" if by_day else "month-day-year" if by_month else None


def _all_dates(cells: list[str], how: str) -> bool:
    return bool(cells) and all(days(cell, how) is not None for cell in cells)


def days(cell: str, how: str) -> float | None:
    """Days since 1970-01-01 of a date that is written in this way, or none; time zones count."""
    match = (YEAR_FIRST if how == "year-month-day" else YEAR_LAST).fullmatch(cell)
    if match is None:
        return None
    part = match.groupdict()
    if how == "year-month-day":
        month, day = part["m"], part["d"]
    else:
        month, day = (part["b"], part["a"]) if how == "day-month-year" else (part["a"], part["b"])
    try:
        moment = datetime.datetime(
            *(int(part["y"]), int(month), int(day)),
            *(int(part["H"] or 0), int(part["M"] or 0), int(part["S"] or 0)),
        )
    except ValueError:
        return None
    seconds = (moment - EPOCH).total_seconds() + float(part["f"] or 0)
    zone = (part["z"] or "Z").replace(":", "")
    if zone != "Z":
        offset = int(zone[1:3]) * 3600 + int(zone[3:5]) * 60
        seconds -= offset if zone[0] == "+" else -offset
    return seconds / DAY


def days_of(value: datetime.date) -> float:
    """Days since 1970-01-01 of a date, or of a date and time."""
    if not isinstance(value, datetime.datetime):
        value = datetime.datetime(value.year, value.month, value.day)
    if value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    return (value - EPOCH).total_seconds() / DAY


def differ_in_case(words: Iterable[object]) -> tuple[str, str] | None:
    """Two words that differ only in upper and lower case, if there are such: the first in order."""
    folded: dict[str, str] = {}
    for word in sorted({word for word in words if isinstance(word, str)}):
        other = folded.setdefault(word.casefold(), word)
        if other != word:
            return other, word
    return None


def looks_numeric(words: Iterable[tuple[str, int]]) -> tuple[int, int, str]:
    """Of words with their counts: how many cells begin with a number, all cells, an example."""
    numeric, total, example = 0, 0, ""
    for word, count in words:
        total += count
        if BEGINS_WITH_A_NUMBER.fullmatch(word):
            numeric += count
            if not example or PLAIN.fullmatch(example):  # one with a unit says more
                example = word
    return numeric, total, example
