"""Tables (a pandas DataFrame, or a dict of columns) as features: numbers, and one-hot words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal.core.errors import LONGEST, GlocalError, shown
from glocal.data import validation as check
from glocal.data.validation import Array

MOST_WORDS = 1000
"""A column with more distinct words is an id or free text, not a category."""


def is_table(x: Any) -> bool:
    """Whether ``x`` has named columns. A DataFrame is recognised without importing pandas."""
    return isinstance(x, Mapping) or (hasattr(x, "columns") and hasattr(x, "__getitem__"))


def columns(x: Any) -> dict[str, Array]:
    """The columns of a table by name, all of one length."""
    names: Iterable[Any] = x if isinstance(x, Mapping) else x.columns
    out = {str(name): check.as_array(x[name], f"column {name!r}") for name in names}
    if not out or len(next(iter(out.values()))) == 0:
        raise GlocalError("the table has no rows: give at least three examples for each client.")
    n = len(next(iter(out.values())))
    for name, column in out.items():
        if column.shape != (n,):
            raise GlocalError(
                f"column {shown(name)} has shape {column.shape} in a table of {n} rows: give one "
                "value for each row."
            )
    return out


def column(table: Mapping[str, Array], name: str, what: str) -> Array:
    """One column, or an error that lists the columns there are."""
    if name not in table:
        raise GlocalError(
            f"no column {shown(name)} to take {what} from: the columns are {listed(table)}."
        )
    return table[name]


def listed(names: Iterable[str]) -> str:
    """The names of the first columns, for a message."""
    every = list(names)
    more = f" and {len(every) - 20} more" if len(every) > 20 else ""
    return ", ".join(name[:LONGEST] for name in every[:20]) + more


def encode(
    table: Mapping[str, Array],
) -> tuple[Tensor, Tensor, list[str], list[tuple[int, int]]]:
    """Features [n, d] in float64, which columns are numeric, their names, and the categories.

    A category is the range (start, end) of its one-hot columns.
    """
    if not table:
        raise GlocalError("no columns are left as features: give some beside label and client.")
    parts: list[Array] = []
    names: list[str] = []
    numeric: list[bool] = []
    categories: list[tuple[int, int]] = []
    for name, values in table.items():
        filled = _filled(name, values)
        if filled.dtype.kind in "biuf":
            parts.append(filled.astype(np.float64)[:, None])
            names.append(name)
            numeric.append(True)
        else:
            words, code = np.unique(filled, return_inverse=True)
            if len(words) > MOST_WORDS:
                raise GlocalError(
                    f"column {shown(name)} has {len(words)} different words, more than "
                    f"{MOST_WORDS}: leave it out, use fewer words, or name it with group= if it "
                    "says which rows belong together."
                )
            categories.append((len(names), len(names) + len(words)))
            parts.append(np.eye(len(words))[code])
            names.extend(f"{name}={word}" for word in words)
            numeric.extend(False for _ in words)
    features = torch.tensor(np.concatenate(parts, axis=1))
    return features, torch.tensor(numeric), names, categories


def _filled(name: str, values: Array) -> Array:
    """The column as numbers or as text, after a check for missing or infinite cells."""
    if values.dtype.kind in "biuf":
        with np.errstate(over="ignore"):
            bad = ~np.isfinite(values.astype(np.float32))
    else:
        bad = np.array([check.missing(v) for v in values.tolist()])
    if bad.any():
        raise GlocalError(
            f"column {shown(name)} is missing or not finite (NaN, infinite or too large) in row "
            f"{int(bad.nonzero()[0][0])}: fill such values in, or leave those rows out."
        )
    if values.dtype.kind != "O":
        return values if values.dtype.kind in "biuf" else values.astype(str)
    # An object column of numbers alone (pandas' nullable integers) is still numbers.
    numbers = all(isinstance(v, int | float) for v in values.tolist())
    return _filled(name, check.as_floats(values)) if numbers else values.astype(str)
