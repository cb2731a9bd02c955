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

MINUS = "\u2212"
"""The minus that word processors write."""
BETWEEN_THOUSANDS = "['\u2019\u00a0\u202f]"
"""Apostrophes, and blanks at which no line breaks: in a number they can mean nothing else."""
GROUPED = re.compile(rf"[+-]?[1-9]\d{{0,2}}({BETWEEN_THOUSANDS}\d{{3}})+([.,]\d+)?")

LEADING_ZERO = re.compile(r"0\d+")
TRUTH = {"true": 1.0, "false": 0.0}

LIKE_A_NUMBER = re.compile(
    rf"([<>≤≥~≈=€$£¥(]{{0,2}}|EUR|USD|GBP|CHF)\s*[+{MINUS}-]?"
    rf"(\d{{1,3}}( \d{{3}})+([.,]\d+)?|\d+(([.,]|{BETWEEN_THOUSANDS})\d+)*)\s*[^\d\s]?[^\d]{{0,11}}"
)
"""A number with a unit or a sign: "27.9 kg", "< 5", "12 %", "€ 5.20", "1 234"."""

A_NUMBER = rf"(?P<number>[+{MINUS}-]?([\d.,]|{BETWEEN_THOUSANDS})*\d)"
UNIT_BEHIND = re.compile(
    A_NUMBER + r"(?:\s+(?P<after>[^\W\d_]\S{0,11})|\s*(?P<unit>[%‰°€$£¥]\S{0,11}"
    r"|[^\W\d_]{2}\S{0,10}))"
)
"""A number and its unit, as in "27.9 kg", "12%", "31 kg/m2"; "3b" may be the name of a ward."""
CURRENCY_IN_FRONT = re.compile(rf"(?P<sign>[+{MINUS}-]?)(?P<unit>[€$£¥])\s*" + A_NUMBER)

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
    cell = cell.replace(MINUS, "-")
    if GROUPED.fullmatch(cell):
        cell = re.sub(BETWEEN_THOUSANDS, "", cell)
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
    read = {mark: [number(cell, mark) for cell in distinct] for mark in ".,"}
    marks = [mark for mark, numbers in read.items() if None not in numbers]
    if len(marks) == 2 and read["."] != read[","]:
        return None
    return marks[0] if marks else None


def is_ambiguous(cells: Iterable[str]) -> bool:
    """Whether all cells are numbers with either decimal mark, and not the same ones ("1,234")."""
    distinct = set(cells)
    return all(number(cell, mark) is not None for cell in distinct for mark in ",.")


def codes_with_zeros(cells: Iterable[str]) -> bool:
    """Whether all cells are as many digits, some with zeros in front: codes, such as postcodes."""
    distinct = set(cells)
    return (
        len({len(cell) for cell in distinct}) == 1
        and all(cell.isdecimal() for cell in distinct)
        and any(LEADING_ZERO.fullmatch(cell) for cell in distinct)
    )


def are_codes(cells: Iterable[str], decimal: str | None) -> bool:
    """Whether cells that were read as words are numbers all the same."""
    distinct = set(cells)
    return bool(distinct) and decimal_mark(distinct, decimal) is not None


def split_unit(cell: str) -> tuple[str, str] | None:
    """The number and the unit of a cell, which is behind it or, of a currency, in front."""
    if match := UNIT_BEHIND.fullmatch(cell):
        return match["number"], match["after"] or match["unit"]
    if match := CURRENCY_IN_FRONT.fullmatch(cell):
        return match["sign"] + match["number"], match["unit"]
    return None


def unit_of(cells: Iterable[str], said: str | None) -> tuple[str, str] | None:
    """The decimal mark and the unit with which all cells are numbers; None: there is no such."""
    numbers, units = set(), set()
    for cell in cells:
        parts = split_unit(cell)
        if parts is None:
            return None
        numbers.add(parts[0])
        units.add(parts[1])
    mark = decimal_mark(numbers, said)
    return (mark, units.pop()) if mark is not None and len(units) == 1 else None


def number_with(cell: str, decimal: str, unit: str) -> float | None:
    """The number in a cell that has this unit (``""``: none), or none."""
    if cell.endswith(unit):
        return number(cell.removesuffix(unit).rstrip(), decimal)
    parts = split_unit(cell)
    return number(parts[0], decimal) if parts is not None and parts[1] == unit else None


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
