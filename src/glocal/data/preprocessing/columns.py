"""A fitted column: from its cells to features, and to JSON and back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from glocal.core.errors import GlocalError, shown
from glocal.data.preprocessing.kinds import CATEGORY, DATE, NUMBER
from glocal.data.validation import Array

OTHER = "(other)"
"""What the feature of rare words is called."""


@dataclass(frozen=True)
class Column:
    """One column of a table, and all that is needed to make features of its cells.

    Tuples of statistics have one value for all clients, or one for each.
    """

    name: str
    kind: str
    format: str = ""
    """The decimal mark of numbers in text, or how dates are written."""
    indicator: bool = False
    """Whether a feature more says that the cell is missing."""
    fill: tuple[float, ...] = (0.0,)
    """What is put into missing cells: the median, or the position of the most frequent level."""
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    levels: tuple[str, ...] = ()
    """The words that have a feature each."""
    other: bool = False
    """Whether there is a feature for all other words."""
    unseen: tuple[str, ...] = ()
    """Levels that no training row has: they have a feature, which stays 0."""

    @property
    def features(self) -> list[str]:
        """The names of the features."""
        if self.kind == CATEGORY:
            names = [f"{self.name}={level}" for level in self.levels]
            names += [f"{self.name}={OTHER}"] if self.other else []
        else:
            names = [self.name]
        return [*names, f"{self.name} is missing"] if self.indicator else names

    @property
    def width(self) -> int:
        """The number of features."""
        hot = len(self.levels) + self.other if self.kind == CATEGORY else 1
        return hot + self.indicator

    def positions(self, words: Sequence[str | None]) -> Array:
        """The position of each word among the levels: −1 if it is none, NaN if it is missing."""
        known = {word: float(i) for i, word in enumerate(self.levels)}
        return np.array([math.nan if w is None else known.get(w, -1.0) for w in words], np.float64)

    def encode(self, values: Array, client: Array) -> Array:
        """Features [n, width] in float64 of numbers, days or positions [n].

        ``client`` is the index of each row's client among the statistics (0 if there is one set).
        """
        missing = np.isnan(values)
        filled = np.where(missing, np.array(self.fill)[client], values)
        if self.kind == CATEGORY:
            hot = len(self.levels) + self.other
            position = filled.astype(np.int64)
            dead = np.array([level in self.unseen for level in self.levels] + [False])
            position = np.where(dead[position], -1, position)
            if self.other:
                position = np.where(position < 0, len(self.levels), position)
            out = np.zeros((len(values), hot))
            known = (position >= 0).nonzero()[0]
            out[known, position[known]] = 1.0
        else:
            out = ((filled - np.array(self.mean)[client]) / np.array(self.std)[client])[:, None]
        return np.hstack([out, missing[:, None]]) if self.indicator else out

    def of_client(self, k: int) -> Column:
        """The column with the statistics of the ``k``-th client alone."""
        return replace(self, fill=(self.fill[k],), mean=(self.mean[k],), std=(self.std[k],))

    def to_json(self) -> dict[str, Any]:
        """The column as JSON holds it."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}

    @classmethod
    def from_json(cls, given: Mapping[str, Any], sets: int) -> Column:
        """The column again; ``sets`` is the number of values that each statistic has."""
        try:
            read: dict[str, Any] = {
                name: tuple(v) if isinstance(v, list) else v for name, v in given.items()
            }
            column = cls(**read)
        except TypeError:
            raise damaged(given) from None
        texts = (column.name, column.format, *column.levels, *column.unseen)
        flags = (column.indicator, column.other)
        statistics = (column.fill, column.mean, column.std)
        if (
            column.kind not in (NUMBER, DATE, CATEGORY)
            or not all(isinstance(each, str) for each in texts)
            or not all(isinstance(each, bool) for each in flags)
            or not all(_are_numbers(each, sets) for each in statistics)
            or not all(each > 0 for each in column.std)
            or not (column.kind != CATEGORY or _are_positions(column))
        ):
            raise damaged(given)
        return column


def _are_numbers(values: Any, sets: int) -> bool:
    return (
        isinstance(values, tuple)
        and len(values) == sets
        and all(isinstance(v, int | float) and math.isfinite(v) for v in values)
    )


def _are_positions(column: Column) -> bool:
    """Whether missing cells are filled with levels that are there."""
    most = len(column.levels) + column.other
    return all(v == int(v) and -1 <= v < max(most, 1) for v in column.fill)


def damaged(given: Any) -> GlocalError:
    """The error for preprocessing that was not written by us."""
    return GlocalError(
        f"the saved preprocessing is damaged or of another version at {shown(given)}: save the "
        "model again."
    )
