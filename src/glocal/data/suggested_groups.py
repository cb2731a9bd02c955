"""Signs that rows belong together although nobody said so: copies of rows, and columns of ids.

They are no proof (two patients may have the same six answers), so there is a note and no error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
from torch import Tensor

from glocal.core.errors import shown
from glocal.core.progress import note
from glocal.data.split import Split
from glocal.data.validation import Array

COPIES = 0.01
"""The share of test rows with a copy in training from which it is mentioned."""

MOST_COPIES = 20
"""Rows with more copies than this on average are few kinds of rows, not groups."""

LIKE_AN_ID = re.compile(
    r"(^|[\W_])(id|ids|uuid|patient|subject|user|person|participant|session|customer|household"
    r"|family|device|speaker|writer|author|visit|encounter|animal|specimen|group)(?=$|[\W_])",
    re.IGNORECASE,
)
IN_CAMEL_CASE = re.compile(r"[a-z](Id|ID)$|(patient|subject|user|person)(no|nr|id|num)?$")


def keys(x: Tensor) -> Array:
    """A number for each row that is the same for equal rows (and almost never for others)."""
    rows = x.detach().cpu().flatten(1).contiguous().numpy()
    return np.fromiter((hash(row.tobytes()) for row in rows), np.int64, len(rows))


def mention(x: Tensor, train: Split, test: Split, columns: Mapping[str, Array]) -> None:
    """Print a note where copies of rows or a column of ids suggest groups."""
    for name, values in columns.items():
        distinct = len(np.unique(values.astype(str))) if looks_like_an_id(name) else 0
        if distinct > 2 and 1.5 * distinct <= len(values):
            note(
                f"column {shown(name)} looks like an id and has {distinct} values in "
                f"{len(values)} rows, so rows may belong together: with group={name!r} they stay "
                "in one split and count as one, and the id is no feature."
            )
            return
    found = keys(x)
    tested, trained = found[test.rows.numpy()], found[train.rows.numpy()]
    copies = int(np.isin(tested, trained).sum())
    few_kinds = len(np.unique(found)) * MOST_COPIES < len(found)
    if copies > max(1, COPIES * len(tested)) and not few_kinds:
        note(
            f"{copies} of {len(tested)} test rows have a copy among the training rows, so what is "
            "tested may have been learnt by heart: if rows belong together, say so with group=; "
            "else leave the copies out."
        )


def looks_like_an_id(name: str) -> bool:
    """Whether a column is named like the id of somebody who may have several rows."""
    return bool(LIKE_AN_ID.search(name) or IN_CAMEL_CASE.search(name))
