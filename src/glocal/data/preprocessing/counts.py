"""A table's columns by sums and counts: what clients can say of them without sending a row.

Of a column of numbers or dates that is how many cells there are, how many are missing, the mean and
the sum of squares about it; of words, how often each occurs. Sums of fewer values than ``least``
are withheld, and so are words that fewer rows have: these are counted together.

The columns that follow are those of :mod:`glocal.data.preprocessing.fitting`, with one departure: a
missing number becomes the mean, since no sum gives the median.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import reduce
from typing import Any, TypeGuard

import numpy as np

from glocal.core.errors import GlocalError, shown
from glocal.data.preprocessing import fitting, statistics
from glocal.data.preprocessing.columns import Column
from glocal.data.preprocessing.kinds import CATEGORY, DATE, NUMBER, RawColumn
from glocal.data.suggested_groups import looks_like_an_id
from glocal.data.validation import Array

EMPTY = "empty"
"""The kind of a column of which a client has no cell that says anything."""

MOST_WORDS = 1000
"""Words of a column that a client names, the most frequent; a schema has a feature for 30."""

LONGEST_TEXT = 200
"""Characters of a word, or of a column's name."""

LARGEST = float(np.finfo(np.float32).max)
"""No number of a table is larger."""


@dataclass(frozen=True)
class Moments:
    """How many numbers there are, their mean, and the sum of squares about it."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    @classmethod
    def of(cls, values: Array) -> Moments:
        """Those of some numbers."""
        if not len(values):
            return cls()
        mean = math.fsum(values.tolist()) / len(values)
        return cls(len(values), mean, math.fsum(((values - mean) ** 2).tolist()))

    def merged(self, other: Moments) -> Moments:
        """Those of both together.

        Chan, Golub & LeVeque: *Updating formulae and a pairwise algorithm for computing sample
        variances*, 1979.
        """
        count = self.count + other.count
        if not count:
            return self
        apart = other.mean - self.mean
        mean = self.mean + apart * other.count / count
        between = apart**2 * (self.count * other.count / count)
        return Moments(count, mean, self.squares + other.squares + between)

    @property
    def std(self) -> float:
        """The standard deviation; 1 of a constant."""
        return statistics.deviation(self.mean, self.squares, self.count)

    @property
    def constant(self) -> bool:
        """Whether all numbers are the same, up to rounding."""
        return statistics.is_constant(self.mean, self.squares, self.count)


@dataclass(frozen=True)
class WordCounts:
    """How often each word occurs that enough rows have, and how many rows have others."""

    words: Mapping[str, int] = field(default_factory=dict)
    rare: int = 0
    """Rows with a word that is not named."""
    rare_words: int = 0
    """How many such words there are."""

    @classmethod
    def of(cls, words: Mapping[str, int], least: int) -> WordCounts:
        """Those of words that occur so often; one that cannot be shown in a line is not named."""
        by_count = sorted(words.items(), key=lambda each: (-each[1], each[0]))
        named = {w: n for w, n in by_count if n >= least and is_text(w)}
        named = dict(list(named.items())[:MOST_WORDS])
        rest = [n for word, n in words.items() if word not in named]
        return cls(dict(sorted(named.items())), sum(rest), len(rest))

    def merged(self, other: WordCounts) -> WordCounts:
        """Those of both together; rare words may be the same at both, which nobody can tell."""
        words = dict(self.words)
        for word, count in other.words.items():
            words[word] = words.get(word, 0) + count
        rare = self.rare + other.rare
        return WordCounts(words, rare, self.rare_words + other.rare_words)

    @property
    def rows(self) -> int:
        """How many rows have a word."""
        return sum(self.words.values()) + self.rare


@dataclass(frozen=True)
class ColumnCounts:
    """What one client, or several together, say of a column of their training rows."""

    kind: str
    """Numbers, dates or words; or that no cell says anything."""
    format: str = ""
    """As that of a :class:`~glocal.data.preprocessing.columns.Column`."""
    missing: int = 0
    numbers: Moments | None = None
    """Of numbers and dates, unless there are too few to send their sums."""
    words: WordCounts | None = None
    all_differ: bool = False
    """Whether these are integers, each of them once, like an id."""

    @classmethod
    def of(cls, raw: RawColumn, rows: Array, least: int) -> ColumnCounts:
        """Those of the training rows ``rows`` of a column."""
        values = raw.values[rows]
        known = values[~np.isnan(values)]
        missing = len(values) - len(known)
        if np.isnan(raw.values).all():
            return cls(EMPTY, missing=missing)
        if raw.kind == CATEGORY:
            positions, counts = np.unique(known.astype(np.int64), return_counts=True)
            words = [raw.words[position] for position in positions.tolist()]
            named = WordCounts.of(dict(zip(words, counts.tolist(), strict=True)), least)
            return cls(CATEGORY, raw.format, missing, words=named)
        whole = raw.values[~np.isnan(raw.values)]
        marked = not (raw.format == "." and bool((whole == np.floor(whole)).all()))
        integers = bool((known == np.floor(known)).all())
        return cls(
            raw.kind,
            raw.format if marked else "",  # integers are the same with any decimal mark
            missing,
            Moments.of(known) if len(known) >= least else None,
            all_differ=integers and len(np.unique(known)) == len(known) > 1,
        )

    def to_json(self) -> dict[str, Any]:
        """The counts as JSON holds them."""
        return asdict(self)

    @classmethod
    def from_json(cls, given: Any, rows: int, least: int) -> ColumnCounts:
        """The counts that somebody sent of so many training rows.

        Raises:
            ValueError: they cannot be; the text says why, and has nothing of what was sent.
        """
        _require(isinstance(given, dict) and given.keys() == asdict(cls("")).keys(), "its fields")
        kind, form, missing = (given[name] for name in ("kind", "format", "missing"))
        _require(kind in (NUMBER, DATE, CATEGORY, EMPTY), "the kind of a column")
        _require(isinstance(form, str) and (not form or is_text(form)), "the format of a column")
        _require(is_count(missing, rows), "a count of missing values")
        _require(type(given["all_differ"]) is bool, "its fields")
        known = rows - missing
        if kind == CATEGORY:
            _require(given["numbers"] is None, "its fields")
            words = word_counts(given["words"], known, least)
            return cls(kind, form, missing, words=words)
        _require(given["words"] is None, "its fields")
        _require(kind != EMPTY or (not known and given["numbers"] is None), "its fields")
        numbers = None if given["numbers"] is None else moments(given["numbers"], known, least)
        return cls(kind, form, missing, numbers, all_differ=given["all_differ"])


def moments(given: Any, count: int, least: int) -> Moments:
    """The sums that somebody sent of so many numbers; raises ValueError where they cannot be."""
    _require(isinstance(given, dict) and given.keys() == asdict(Moments()).keys(), "its fields")
    _require(type(given["count"]) is int and given["count"] == count >= least, "a count of numbers")
    mean, squares = given["mean"], given["squares"]
    _require(type(mean) is float and abs(mean) <= LARGEST, "a mean")
    _require(type(squares) is float and 0 <= squares <= count * (2 * LARGEST) ** 2, "a deviation")
    _require(count > 1 or squares == 0, "a deviation")
    return Moments(count, mean, squares)


def word_counts(given: Any, rows: int, least: int) -> WordCounts:
    """The words that somebody sent of so many rows; raises ValueError where they cannot be."""
    _require(isinstance(given, dict) and given.keys() == asdict(WordCounts()).keys(), "its fields")
    words, rare, rare_words = (given[name] for name in ("words", "rare", "rare_words"))
    _require(isinstance(words, dict), "its fields")
    _require(len(words) <= MOST_WORDS, f"more than {MOST_WORDS} categories in a column")
    _require(all(is_text(word) for word in words), "the name of a category")
    counted = all(is_count(n, rows) and n >= least for n in words.values())
    _require(counted and is_count(rare, rows), "a count of a category")
    _require(is_count(rare_words, rare) and (rare > 0) == (rare_words > 0), "a count of a category")
    found = WordCounts(words, rare, rare_words)
    _require(found.rows == rows, "counts that do not add up to the number of rows")
    return found


def is_count(value: Any, most: int) -> TypeGuard[int]:
    """Whether this is an integer from 0 to ``most``."""
    return type(value) is int and 0 <= value <= most


def is_text(value: Any) -> bool:
    """Whether this can be shown in a line: no control characters, and not too long."""
    return isinstance(value, str) and 0 < len(value) <= LONGEST_TEXT and value.isprintable()


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)


def column_of(
    name: str, parts: Mapping[str, ColumnCounts], *, forced: bool = False
) -> tuple[Column | None, str]:
    """The column that follows from all clients' counts, by who sent them; and what became of it.

    A column that was asked for by name (``forced``) is not left out for looking like an id.
    """
    said = {who: part for who, part in parts.items() if part.kind != EMPTY}
    missing = sum(part.missing for part in parts.values())
    if not said:
        return None, "left out: empty"
    kind = _agreed(name, {who: part.kind for who, part in said.items()})
    form = _agreed(name, {who: part.format for who, part in said.items() if part.format})
    column = Column(name, kind, form, indicator=missing > 0)
    if kind == CATEGORY:
        each = [part.words or WordCounts() for part in said.values()]
        return _of_words(column, reduce(WordCounts.merged, each), forced=forced)
    total = reduce(Moments.merged, (part.numbers or Moments() for part in said.values()))
    if not total.count:
        return None, "left out: too few values anywhere"
    if total.constant and not missing:
        return None, "left out: constant"
    alike = all(part.all_differ for part in said.values()) and total.count >= fitting.FEW
    if alike and not forced and looks_like_an_id(name):
        return None, "left out: an id"
    fitted = {"fill": (total.mean,), "mean": (total.mean,), "std": (total.std,)}
    return Column(**{**vars(column), **fitted}), "dates" if kind == DATE else "a number"


def _of_words(column: Column, total: WordCounts, *, forced: bool) -> tuple[Column | None, str]:
    distinct = len(total.words) + total.rare_words
    if fitting.is_free_text(distinct, total.rows) and not forced:
        return None, "left out: an id or free text"
    if not total.words:
        return None, "left out: all its words are rare"
    if distinct == 1 and not column.indicator:
        return None, "left out: constant"
    levels = fitting.levels_of(total.words)
    counts = [total.words[level] for level in levels]
    words = {
        "levels": levels,
        "other": len(levels) < distinct,
        "fill": (float(np.argmax(counts)),),
    }
    made = Column(**{**vars(column), **words})
    return made, f"{made.width - made.indicator} words"


def _agreed(name: str, said: Mapping[str, str]) -> str:
    """What all say of a column; an error that names two who do not agree."""
    first: dict[str, str] = {}
    for who, what in said.items():
        first.setdefault(what, who)
    if len(first) > 1:
        (one, here), (another, there), *_ = first.items()
        raise GlocalError(
            f"column {shown(name)} is {shown(one)} at {here} and {shown(another)} at {there}: ask "
            "them to write it the same way, or leave it out with drop in the settings."
        )
    return next(iter(first), "")
