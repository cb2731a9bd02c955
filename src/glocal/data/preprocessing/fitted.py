"""Fitted preprocessing: raw rows to features, in training and for new rows alike."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal.core.errors import GlocalError, shown, unknown
from glocal.data.preprocessing import kinds
from glocal.data.preprocessing.columns import Column, damaged
from glocal.data.table import Table, as_table, is_table, listed
from glocal.data.validation import Array

FAR = 50.0
"""A number so many standard deviations from the mean of training rows is hardly one of its kind."""

VERSION = 1
"""Of the JSON that preprocessing is saved as."""


@dataclass(frozen=True)
class Preprocessing:
    """What was fitted on training rows, column by column.

    It takes raw rows: a DataFrame, a dict of columns, a dict of one row, or a file that
    :func:`glocal.data.reading.read_table` has read.

    - A number is standardised. A missing one is the median and, where training rows had missing
      ones, a feature more says so.
    - A date is days since 1970-01-01, and then a number.
    - A word is one-hot. A missing one is the most frequent and, where training rows had missing
      ones, a feature more says so. A word that no training row has is all zeros, or "(other)" where
      the column has that feature.
    - Columns that it does not know are ignored. A column that is not there is an error, and so is
      a cell that is not of its column's kind.
    """

    columns: tuple[Column, ...]
    clients: tuple[str, ...] | None = None
    """The clients, if each has statistics of its own."""

    @property
    def features(self) -> list[str]:
        """The names of the features."""
        return [name for column in self.columns for name in column.features]

    @property
    def categories(self) -> list[tuple[int, int]]:
        """The first and last (exclusive) one-hot feature of each column of words."""
        ranges, begin = [], 0
        for column in self.columns:
            if column.kind == kinds.CATEGORY:
                ranges.append((begin, begin + column.width - column.indicator))
            begin += column.width
        return ranges

    def apply(self, rows: Any, client: str | None = None) -> Tensor:
        """Features [n, d] in float32 of raw rows, which are those of a client if it is named."""
        table = self.table_of(rows)
        which = np.full(table.rows, self._index(client))
        return self.encode([self._values(table, column) for column in self.columns], which)

    def unknown_words(self, rows: Any) -> dict[str, list[str]]:
        """The words of each column that no training row had; columns without any are left out.

        Of a column with "(other)" these are all words that count as that: which words of training
        were grouped is not kept, as rare words may tell who somebody is.
        """
        table, found = self.table_of(rows), {}
        for column in self.columns:
            if column.kind == kinds.CATEGORY:
                _, words = kinds.converted(table, column.name, column.kind, column.format)
                known = {None, *column.levels} - set(column.unseen)
                if new := sorted({word for word in words if word not in known and word}):
                    found[column.name] = new
        return found

    def far_numbers(self, rows: Any) -> dict[str, str]:
        """Of columns with a number far from all that is usual in training: it, and where it is.

        Far is more than :data:`FAR` standard deviations from the mean of training rows; nothing is
        far where numbers were not standardised.
        """
        table, found = self.table_of(rows), {}
        for column in self.columns:
            mean, std = column.mean[0], column.std[0]
            if column.kind == kinds.CATEGORY or (mean, std) == (0.0, 1.0):
                continue
            values = self._values(table, column)
            far = np.abs(values - mean) > FAR * std
            if far.any():
                row = int(far.nonzero()[0][0])
                found[column.name] = f"{values[row]:g} in {table.where(row)}"
        return found

    def encode(self, values: list[Array], client: Array) -> Tensor:
        """Features of columns that are numbers, days or positions of words already."""
        rows, width = len(client), sum(column.width for column in self.columns)
        out = torch.empty(rows, width, dtype=torch.float32)
        begin = 0
        for column, each in zip(self.columns, values, strict=True):
            encoded = torch.from_numpy(column.encode(each, client))
            out[:, begin : begin + column.width] = encoded.float()
            begin += column.width
        return out

    def table_of(self, rows: Any) -> Table:
        """Raw rows as a table that has all columns; else an error that names those missing."""
        if isinstance(rows, Mapping) and rows and not any(_is_column(v) for v in rows.values()):
            rows = {name: [value] for name, value in rows.items()}  # one row
        if not is_table(rows):
            raise GlocalError(
                f"{shown(rows)} is no row of a table: give a DataFrame, a dict of columns, or a "
                "dict of one row."
            )
        table = as_table(rows)
        absent = [column.name for column in self.columns if column.name not in table]
        if absent:
            plural = "s" if len(absent) > 1 else ""
            raise GlocalError(
                f"the rows have no column{plural} {', '.join(map(shown, absent[:5]))}, with which "
                f"the model was trained: theirs are {listed(table)}."
            )
        return table

    def _values(self, table: Table, column: Column) -> Array:
        values, words = kinds.converted(table, column.name, column.kind, column.format)
        return column.positions(words) if column.kind == kinds.CATEGORY else values

    def _index(self, client: str | None) -> int:
        """Whose statistics are used."""
        if self.clients is None:
            return 0
        if client is None:
            raise GlocalError(
                "every client has statistics of its own here: say whose rows these are (client=)."
            )
        if client not in self.clients:
            raise unknown("client", client, self.clients)
        return self.clients.index(client)

    def of_client(self, client: str) -> Preprocessing:
        """That of one client, without the statistics of the others."""
        if self.clients is None:
            return self
        k = self._index(client)
        return Preprocessing(tuple(column.of_client(k) for column in self.columns))

    def to_json(self) -> dict[str, Any]:
        """The preprocessing as JSON holds it."""
        return {
            "version": VERSION,
            "clients": None if self.clients is None else list(self.clients),
            "columns": [column.to_json() for column in self.columns],
        }

    @classmethod
    def from_json(cls, given: Any) -> Preprocessing:
        """The preprocessing again, from what :meth:`to_json` gave, or its text."""
        if isinstance(given, str | bytes):
            try:
                given = json.loads(given)
            except (ValueError, RecursionError):
                raise damaged(given) from None
        if not isinstance(given, Mapping) or given.get("version") != VERSION:
            raise damaged(given)
        clients, columns = given.get("clients"), given.get("columns")
        if clients is not None and not (
            isinstance(clients, list) and clients and all(isinstance(c, str) for c in clients)
        ):
            raise damaged(clients)
        if not isinstance(columns, list) or not all(isinstance(c, Mapping) for c in columns):
            raise damaged(columns)
        sets = 1 if clients is None else len(clients)
        read = tuple(Column.from_json(column, sets) for column in columns)
        if not read or len({column.name for column in read}) < len(read):
            raise damaged(columns)
        return cls(read, None if clients is None else tuple(clients))


def _is_column(value: Any) -> bool:
    """Whether a dict's value is a column rather than a cell."""
    return hasattr(value, "__len__") and not isinstance(value, str | bytes)
