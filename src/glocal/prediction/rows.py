"""Raw rows as a model's inputs: tables by the model's preprocessing, arrays as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal.core.errors import GlocalError, shown
from glocal.data.preprocessing.fitted import Preprocessing
from glocal.data.reading import SUFFIXES, read_table
from glocal.data.table import Table, is_table
from glocal.data.validation import Array, as_array

ARRAYS = (".npy", ".npz")
"""Files that hold an array of inputs."""


def read_rows(path: str | Path, **options: str | None) -> Table | Array:
    """The rows of a file: a table, or the array of a ``.npy`` (or ``x`` of a ``.npz``) file."""
    path = Path(path)
    if path.suffix.lower() not in ARRAYS:
        if path.suffix.lower() not in SUFFIXES and path.exists():
            raise GlocalError(
                f"{path.name} is not a kind of file with rows: give one that ends in "
                f"{', '.join((*SUFFIXES, *ARRAYS))}."
            )
        return read_table(path, **options)
    try:
        read: Any = np.load(path, allow_pickle=False)
        return np.asarray(read["x"] if path.suffix.lower() == ".npz" else read)
    except FileNotFoundError:
        raise GlocalError(f"there is no file {shown(str(path))}: check the path.") from None
    except KeyError:
        raise GlocalError(f"{path} has no array x: give the inputs under that name.") from None
    except (OSError, ValueError, EOFError) as error:
        raise GlocalError(
            f"{path} cannot be read as an array of numbers ({str(error)[:100]}): save it with "
            "numpy.save."
        ) from error


def opened(rows: Any) -> Any:
    """Rows that are named by a path are read, and a list of rows becomes columns."""
    if isinstance(rows, str | Path):
        return read_rows(rows)
    if isinstance(rows, Sequence) and rows and all(isinstance(row, Mapping) for row in rows):
        return _columns(rows)
    return rows


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """A list of dicts as a dict of columns. A cell that is missing is None, and never left out."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    for i, row in enumerate(rows):
        for name in names:
            if name not in row:
                raise GlocalError(
                    f"row {i} has no {shown(name)}, which other rows have: write None where a "
                    "value is missing."
                )
    return {name: [row[name] for row in rows] for name in names}


def as_inputs(
    rows: Any, preprocessing: Preprocessing | None, shape: tuple[int, ...], tokens: bool
) -> Tensor:
    """Inputs [n, …] of rows that were :func:`opened`; rows that do not fit are an error.

    A tensor is taken for inputs as in training, also where there is preprocessing.
    """
    _refuse_none(rows)
    if isinstance(rows, Tensor):
        return _checked(rows.detach().cpu(), shape, tokens)
    if preprocessing is not None:
        return preprocessing.apply(rows)
    if is_table(rows):
        raise GlocalError(
            f"this model was not trained on a table: give an array of {_wanted(shape, tokens)}."
        )
    array = as_array(rows, "the input")
    if array.dtype.kind not in "biuf":
        raise GlocalError(
            f"the input holds {array.dtype}, such as {shown(rows)}: give {_wanted(shape, tokens)}."
        )
    return _checked(torch.from_numpy(np.ascontiguousarray(array)), shape, tokens)


def _refuse_none(rows: Any) -> None:
    """Refuse a table or an array in which there are no rows."""
    if isinstance(rows, Mapping) and not isinstance(rows, Table):
        sizes = [len(v) for v in rows.values() if hasattr(v, "__len__") and not isinstance(v, str)]
        empty = not rows or (bool(sizes) and not any(sizes))
    elif isinstance(rows, Table):
        empty = rows.rows == 0
    else:
        empty = hasattr(rows, "__len__") and len(rows) == 0
    if empty:
        raise GlocalError("there are no rows to predict: give at least one.")


def _wanted(shape: tuple[int, ...], tokens: bool) -> str:
    return f"{'token ids (integers)' if tokens else 'floats'} of shape {['n', *shape]}".replace(
        "'n'", "n"
    )


def _checked(inputs: Tensor, shape: tuple[int, ...], tokens: bool) -> Tensor:
    if tuple(inputs.shape[1:]) != shape or inputs.dim() == 0:
        # A single column may be given flat, as in training.
        if inputs.dim() == 1 and shape == (1,):
            inputs = inputs[:, None]
        else:
            raise GlocalError(
                f"the model cannot take inputs of shape {list(inputs.shape)}: give "
                f"{_wanted(shape, tokens)}, as it was trained on."
            )
    if tokens == inputs.is_floating_point() or inputs.dtype == torch.bool or inputs.is_complex():
        raise GlocalError(
            f"the model cannot take inputs of {inputs.dtype}: give {_wanted(shape, tokens)}, as it "
            "was trained on."
        )
    if tokens:
        return inputs.long()
    inputs = inputs.float()
    bad = ~torch.isfinite(inputs.flatten(1)).all(1)
    if bad.any():
        raise GlocalError(
            f"the input is not finite (NaN or infinite) in row {int(bad.nonzero()[0])}: fill such "
            "values in, or leave those rows out."
        )
    return inputs
