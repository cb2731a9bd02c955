"""Data from a file: ``.npz`` with the arrays x, y and optionally client, group; or ``.csv``."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from glocal.core.errors import GlocalError, shown
from glocal.data.datasets import Source
from glocal.data.table import listed
from glocal.data.validation import Array

ARRAYS = ("x", "y", "client", "group")
"""The arrays of an ``.npz`` that are read."""

GAPS = ("", "na", "n/a", "nan", "null", "none", "?")
"""Cells that mark a missing value, in lower case."""


def read(path: Path, label: str, client: str, group: str | None = None) -> Source:
    """Read a file's features, labels and, if it has them, clients and groups."""
    if not os.path.isfile(path):  # Path.is_file raises where a name is too long
        raise GlocalError(f"there is no file {shown(str(path))}: check the path.")
    if path.suffix.lower() == ".npz":
        if (label, client, group) != ("label", "client", None):
            raise GlocalError(
                f"{path.name} has its labels, clients and groups in the arrays y, client and "
                "group: label=, client= and group= name columns of a .csv file, so leave them out."
            )
        return _read_npz(path)
    table = _read_csv(path)
    if label not in table:
        raise GlocalError(
            f"{path.name} has no column {shown(label)} for the labels: its columns are "
            f"{listed(table)}; rename one or name it with label=."
        )
    if client not in table and client != "client":
        # Asked for by name, so a slip: as a feature, the real column would give the answer away.
        raise GlocalError(
            f"{shown(str(path))} has no client column {shown(client)}: the columns are "
            f"{listed(table)}."
        )
    if group is not None and group not in table:
        raise GlocalError(
            f"{path.name} has no column {shown(group)} for the groups: its columns are "
            f"{listed(table)}."
        )
    if group is not None and group in (label, client):
        raise GlocalError(
            f"group= names {shown(group)}, which holds the labels or the clients: name the column "
            "that says which rows of a client belong together."
        )
    return Source(x=table, y=label, clients=client if client in table else None, group=group)


def _read_npz(path: Path) -> Source:
    try:
        # No pickle: a data file must not be able to run code. The file is opened here because
        # numpy leaves one that is not a zip archive open.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            names = list(archive.files)
            arrays = {name: archive[name] for name in names if name in ARRAYS}
    # A damaged archive, one that says it is huge, or a file that is none raises almost anything.
    except Exception:
        raise GlocalError(
            f"{path.name} is not a readable .npz file of plain arrays: write it with "
            "numpy.savez(path, x=…, y=…, client=…), without object arrays."
        ) from None
    if not {"x", "y"} <= arrays.keys():
        raise GlocalError(
            f"{path.name} needs the arrays x and y and has {listed(names) or 'none'}."
        )
    return Source(
        x=arrays["x"], y=arrays["y"], clients=arrays.get("client"), group=arrays.get("group")
    )


def _read_csv(path: Path) -> dict[str, Array]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(_without_nul(file), strict=True) if row]
    except OSError as error:
        raise GlocalError(f"{path.name} cannot be read: {error.strerror}.") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise GlocalError(f"{path.name} is not a readable .csv file in UTF-8: {error}.") from None
    if len(rows) < 2:
        raise GlocalError(f"{path.name} has no rows: give a header and a line for each example.")
    header = [name.strip() for name in rows[0]]
    for i, name in enumerate(header):
        if not name:
            raise GlocalError(
                f"{path.name} has no name for column {i + 1}: name it, or leave it out (pandas "
                "writes no row numbers with index=False)."
            )
        if name in header[:i]:
            raise GlocalError(
                f"{path.name} names a column twice, {shown(name)}: give each column its own name."
            )
    for i, row in enumerate(rows[1:]):
        if len(row) != len(header):
            raise GlocalError(
                f"{path.name} has {len(row)} cells in row {i} and {len(header)} columns: give "
                "every row a cell for each column."
            )
    return {
        name: _typed([cell.strip() for cell in cells])
        for name, *cells in zip(header, *rows[1:], strict=True)
    }


def _without_nul(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        if "\0" in line:
            raise csv.Error("it has NUL characters")
        yield line


def _typed(cells: list[str]) -> Array:
    """A column as integers, as numbers (empty cells and the like are NaN), or as words."""
    with suppress(ValueError, OverflowError):
        return np.array([int(cell) for cell in cells])
    try:
        # One "NA" among numbers is a gap to be named, not a reason to take them all for words.
        return np.array([math.nan if cell.lower() in GAPS else float(cell) for cell in cells])
    except ValueError:
        return np.array(cells)
