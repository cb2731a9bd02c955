"""Data from a user's file: arrays in an ``.npz``, or a table (:mod:`glocal.data.reading`)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from glocal.core.errors import GlocalError, shown
from glocal.data.datasets import Source
from glocal.data.reading import SUFFIXES, read_table
from glocal.data.table import listed

ENDINGS = (*SUFFIXES, ".npz")
"""How the names of files end that can be read."""

ARRAYS = ("x", "y", "client", "group")
"""The arrays of an ``.npz`` that are read."""


def is_file(path: Path) -> bool:
    """Whether the name of data is that of a file, by its end."""
    return path.suffix.lower() in ENDINGS


def read(
    path: Path,
    label: str,
    client: str,
    group: str | None = None,
    options: Mapping[str, str | None] | None = None,
) -> Source:
    """Read a file's features, labels and, if it has them, clients and groups."""
    if not os.path.isfile(path):  # Path.is_file raises where a name is too long
        raise GlocalError(f"there is no file {shown(str(path))}: check the path.")
    if path.suffix.lower() == ".npz":
        if (label, client, group) != ("label", "client", None):
            raise GlocalError(
                f"{path.name} has its labels, clients and groups in the arrays y, client and "
                "group: label=, client= and group= name columns of a table, so leave them out."
            )
        return _read_npz(path)
    table = read_table(path, **options or {})
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
    if client == label:
        raise GlocalError(
            f"client= and label= name the same column, {shown(label)}: name the one that says "
            "whose each row is."
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
