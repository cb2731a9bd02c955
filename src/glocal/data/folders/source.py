"""A source from examples that folders place: clients and splits of their own, or an official test.

Where there are no clients, those of ``test`` are the official test set, and the others are to be
partitioned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from glocal.core.errors import GlocalError
from glocal.data.datasets import Source
from glocal.data.folders.layout import Placed
from glocal.data.validation import Array, Pixels


def of(x: Array, placed: Sequence[Placed], what: str) -> Source:
    """The source of these examples, one for each file."""
    labels = sorted({each.label for each in placed})
    if len(labels) < 2:
        raise GlocalError(
            f"all {what} are of one class, {labels[0]!r}: put them into a folder for each class."
        )
    code = {label: i for i, label in enumerate(labels)}
    y = np.array([code[each.label] for each in placed])
    about: dict[str, Any] = {"classes": len(labels), "labels": tuple(labels)}
    parts = None if placed[0].part is None else np.array([str(each.part) for each in placed])
    if placed[0].client is not None:
        clients = [str(each.client) for each in placed]
        return Source(x=inputs(x), y=y, clients=clients, parts=parts, **about)
    about["own"] = True
    if parts is None:
        return Source(x=inputs(x), y=y, **about)
    test = parts == "test"
    central = (inputs(x[test]), y[test]) if test.any() else None
    return Source(x=inputs(x[~test]), y=y[~test], central=central, **about)


def inputs(x: Array) -> Any:
    """Bytes as pixels, anything else as it is."""
    return Pixels(x) if x.dtype == np.uint8 else x
