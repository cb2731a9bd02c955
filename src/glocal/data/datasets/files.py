"""Data from a user's file: arrays in an ``.npz``, or a table (:mod:`glocal.data.reading`)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from glocal.core.errors import GlocalError, shown
from glocal.data.datasets import Source
from glocal.data.given_split import WORDS as PARTS
from glocal.data.reading import SUFFIXES, read_table
from glocal.data.table import listed
from glocal.data.validation import Array, Pixels

ENDINGS = (*SUFFIXES, ".npz")
"""How the names of files end that can be read."""

ARRAYS = ("x", "y", "client", "group", "part")
"""The arrays of an ``.npz`` that are read."""

MEDMNIST = tuple(f"{part}_{what}" for part in PARTS for what in ("images", "labels"))
"""Those of MedMNIST's files."""


def is_file(path: Path) -> bool:
    """Whether the name of data is that of a file, by its end."""
    return path.suffix.lower() in ENDINGS


def read(
    path: Path,
    label: str,
    client: str,
    group: str | None = None,
    options: Mapping[str, str | None] | None = None,
    *,
    of_plan: bool = False,
) -> Source:
    """Read a file's features, labels and, if it has them, clients and groups.

    Where the columns are those ``of_plan``, which somebody else made, a table may be without the
    client column: all its rows are one client's.
    """
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
            f"{listed(table)}; rename one{'' if of_plan else ' or name it with label='}."
        )
    if client not in table and client != "client" and not of_plan:
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
            arrays = {name: archive[name] for name in names if name in (*ARRAYS, *MEDMNIST)}
    # A damaged archive, one that says it is huge, or a file that is none raises almost anything.
    except Exception:
        raise GlocalError(
            f"{path.name} is not a readable .npz file of plain arrays: write it with "
            "numpy.savez(path, x=…, y=…, client=…), without object arrays."
        ) from None
    if arrays.keys() >= set(MEDMNIST):
        return _medmnist(arrays, path.name)
    if not {"x", "y"} <= arrays.keys():
        raise GlocalError(
            f"{path.name} needs the arrays x and y and has {listed(names) or 'none'}."
        )
    return Source(
        x=arrays["x"],
        y=arrays["y"],
        clients=arrays.get("client"),
        group=arrays.get("group"),
        parts=arrays.get("part"),
    )


def _medmnist(arrays: Mapping[str, Array], name: str) -> Source:
    """MedMNIST's arrays: training and validation images to partition, and an official test set.

    Yang et al.: *MedMNIST v2: a large-scale lightweight benchmark for 2D and 3D biomedical image
    classification*, Scientific Data, 2023.
    """

    def images(*parts: str) -> Pixels:
        x = np.concatenate([arrays[f"{part}_images"] for part in parts])
        if x.dtype != np.uint8 or x.ndim not in (3, 4) or (x.ndim == 4 and x.shape[3] != 3):
            raise GlocalError(
                f"the images of {name} are {x.dtype} {list(x.shape)}: images of bytes, grey or in "
                "colours, are read."
            )
        return Pixels(x[:, None] if x.ndim == 3 else x.transpose(0, 3, 1, 2))

    def labels(*parts: str) -> Array:
        y = np.concatenate([arrays[f"{part}_labels"] for part in parts])
        if y.ndim == 2 and y.shape[1] > 1:
            raise GlocalError(
                f"{name} has {y.shape[1]} labels for each image, and one is read: take another of "
                "MedMNIST's data sets."
            )
        return y.reshape(-1).astype(np.int64)

    y, y_test = labels("train", "val"), labels("test")
    return Source(
        x=images("train", "val"),
        y=y,
        classes=int(max(y.max(), y_test.max())) + 1,
        central=(images("test"), y_test),
    )
