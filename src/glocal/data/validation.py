"""Validation of features, labels, client ids and shares, and their conversion to tensors.

Each function raises a :class:`GlocalError` that names the row and the remedy. Rows count from 0,
unless ``where`` calls them something else, such as the line of a file.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from glocal.core.errors import GlocalError, shown
from glocal.core.padding import IGNORED
from glocal.core.validation import integer
from glocal.data.split import Shares

Array = npt.NDArray[Any]

MOST_CLASSES = 1 << 20
"""Numbers from here on are no classes and no tokens, but something else."""


@dataclass(frozen=True, eq=False)
class Pixels:
    """Images in bytes. They become float32 from 0 to 1, four times as large, in a single copy."""

    values: Array


def as_array(values: Any, what: str) -> Array:
    """Anything array-like as a numpy array."""
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        return np.asarray(values.float() if values.dtype == torch.bfloat16 else values)
    try:
        return np.asarray(values)
    except ValueError:
        raise GlocalError(f"the rows of {what} differ in length: pad them to one shape.") from None


def as_floats(array: Array) -> Array:
    """An array of Python's numbers as float64; what is out of range becomes infinite."""

    def as_float(number: Any) -> float:
        try:
            return float(number)
        except OverflowError:
            return math.inf

    return np.array([as_float(v) for v in array.flat], np.float64).reshape(array.shape)


def missing(value: Any) -> bool:
    """Whether a cell of a table says nothing: None, "", NaN or pandas' NA."""
    if isinstance(value, float):
        return math.isnan(value)
    # pandas' own NA is told by its name, so that pandas need not be there.
    return type(value).__name__ in ("NoneType", "NAType", "NaTType") or value == ""


def features(x: Any) -> Tensor:
    """Features as float32; integers of 16 bits or more are token ids and become int64."""
    if isinstance(x, Pixels):
        scaled = x.values.astype(np.float32, order="C")
        scaled /= 255
        return torch.from_numpy(scaled)
    array = as_array(x, "x")
    if array.ndim == 0 or len(array) == 0:
        raise GlocalError("x has no rows: give at least three examples for each client.")
    if array.dtype.kind not in "biuf":
        raise GlocalError(
            f"x holds {array.dtype} where numbers are wanted: give a table (a DataFrame or a dict "
            "of columns) to have text encoded."
        )
    if 0 in array.shape:
        raise GlocalError(
            f"x has shape {array.shape}, so its rows are empty: give at least one feature."
        )
    if array.dtype.kind in "iu" and array.dtype.itemsize > 1:
        return _tokens(array)
    with np.errstate(over="ignore"):
        out = torch.tensor(array.astype(np.float32))
    bad = ~torch.isfinite(out.flatten(1) if out.dim() > 1 else out[:, None]).all(1)
    if bad.any():
        raise GlocalError(
            f"x is not finite (NaN or infinite) in row {int(bad.nonzero()[0])}: fill such values "
            "in, or leave those rows out."
        )
    return out[:, None] if out.dim() == 1 else out


def _tokens(array: Array) -> Tensor:
    """Integers as the ids of tokens, or an error that says how to give features."""
    bad = (array < 0) | (array >= MOST_CLASSES)
    if bad.any():
        row = int(bad.nonzero()[0][0])
        raise GlocalError(
            f"x holds integers, which are taken for the ids of tokens, and row {row} has "
            f"{array[bad][0]}, which is none: if they are features, give them as floats, as in "
            "x.astype('float32')."
        )
    return torch.tensor(array.astype(np.int64))


def row_index(row: int) -> str:
    """What a row of an array is called in a message."""
    return f"row {row}"


def labels(
    y: Any,
    classes: int | None,
    where: Callable[[int], str] = row_index,
    inside: str = "",
) -> tuple[Tensor, int, dict[str, int] | None]:
    """Labels as int64, the number of classes, and the code of each label if they were words.

    ``inside`` names the column of a table, as in " in column 'outcome'".
    """
    array = as_array(y, "y")
    if array.ndim not in (1, 2) or len(array) == 0:
        raise GlocalError("y has no rows: give one label (or one sequence of labels) for each row.")
    if array.dtype.kind == "O":
        for i, value in enumerate(array.reshape(len(array), -1)[:, 0]):
            if missing(value):
                raise _unlabelled(where(i), inside)
        if all(isinstance(v, numbers.Real) for v in array.flat):
            array = as_floats(array)
    codes = None
    if array.dtype.kind not in "biuf":
        try:
            words = array.astype(str)
        except ValueError:  # lists of different lengths; bytes that are no ASCII
            raise GlocalError(
                "y holds values that are neither numbers nor text: give one label for each row."
            ) from None
        if (words == "").any():
            raise _unlabelled(where(int((words == "").nonzero()[0][0])), inside)
        known, array = np.unique(words, return_inverse=True)
        array = array.reshape(words.shape)
        codes = {str(word): code for code, word in enumerate(known)}
    numbered = _integer_labels(array, classes, where, inside)
    distinct = len(torch.unique(numbered[numbered != IGNORED]))
    if distinct < 2:
        raise GlocalError(
            f"all labels are the same{inside}, so there are fewer than 2 classes: check the label "
            "column."
        )
    return numbered, int(numbered.max()) + 1 if classes is None else classes, codes


def central(pair: tuple[Any, Any], x: Tensor, classes: int | None) -> tuple[Tensor, Tensor]:
    """Validate a test set that belongs to no client: features and classes are those of ``x``.

    Without classes, labels are numbers.
    """
    try:
        inputs, targets = pair
    except (TypeError, ValueError):
        raise GlocalError("central= takes a pair: features and labels of a test set.") from None
    inputs, array = features(inputs), as_array(targets, "the labels of central=")
    if inputs.shape[1:] != x.shape[1:] or inputs.dtype != x.dtype:
        raise GlocalError(
            f"central= has examples {list(inputs.shape[1:])} of {inputs.dtype} and x has "
            f"{list(x.shape[1:])} of {x.dtype}: give the same features."
        )
    if array.shape[:1] != inputs.shape[:1]:
        raise GlocalError(
            f"central= has {len(inputs)} examples and {array.size} labels: give one label each."
        )
    if array.dtype.kind not in "biuf":
        raise GlocalError("the labels of central= should be numbers, as those of y then are, too.")
    if classes is None:
        if array.ndim != 1 or not np.isfinite(array.astype(np.float64)).all():
            raise GlocalError("central= needs one finite number for each example.")
        return inputs, torch.from_numpy(array.astype(np.float64))
    return inputs, _integer_labels(array, classes)


def _unlabelled(row: str, inside: str) -> GlocalError:
    return GlocalError(f"{row} has no label{inside}: fill it in or leave the row out.")


def _integer_labels(
    array: Array,
    classes: int | None,
    name_row: Callable[[int], str] = row_index,
    inside: str = "",
) -> Tensor:
    """Labels as int64, each an integer in [0, classes)."""
    if classes is not None:
        integer(classes, "classes", 2, MOST_CLASSES)

    def reject(bad: Array, why: str) -> None:
        if bad.any():
            where = tuple(int(i[0]) for i in bad.nonzero())
            raise GlocalError(
                f"labels out of range{inside}: {name_row(where[0])} has {array[where]}, {why}."
            )

    wanted = "but classes are integers from 0; give labels as words to have them numbered"
    if array.dtype.kind == "f":
        if np.isnan(array).any():
            raise _unlabelled(name_row(int(np.isnan(array).nonzero()[0][0])), inside)
        reject(~np.isfinite(array) | (array != np.floor(array)), wanted)
    if array.ndim == 2:
        empty = (array == IGNORED).all(1)
        if empty.any():
            row = name_row(int(empty.nonzero()[0][0]))
            raise GlocalError(f"{row} has no label at any position: leave it out.")
        wanted = f"{wanted}; a position that does not count has the label {IGNORED}"
    reject(array < (IGNORED if array.ndim == 2 else 0), wanted)
    if classes is not None:
        reject(array >= classes, f"but classes={classes}, so labels run from 0 to {classes - 1}")
    reject(
        array >= MOST_CLASSES,
        f"and classes are numbered from 0 to {MOST_CLASSES - 1} at most; give labels as words to "
        "have them numbered",
    )
    return torch.tensor(array.astype(np.int64))


def owners(
    ids: Any, n: int, what: str = "client", where: Callable[[int], str] = row_index
) -> tuple[Tensor, tuple[str, ...]]:
    """The client (or group) of each row as an index, and the clients' names in order.

    Integers sort by value, everything else as text.
    """
    argument = "clients" if what == "client" else what
    if getattr(ids, "shape", None) == (n, 1):
        ids = ids.reshape(-1)
    if isinstance(ids, Tensor | np.ndarray) and ids.shape == (n,):
        array = as_array(ids, argument)
        if array.dtype.kind in "iu" and n:  # the same, without an object for each row
            values, whose = np.unique(array, return_inverse=True)
            return torch.from_numpy(whose), tuple(map(str, values.tolist()))
    raw = ids.tolist() if hasattr(ids, "tolist") else ids
    if not isinstance(raw, Iterable) or isinstance(raw, str | Mapping):
        count = "neither a number of clients nor" if what == "client" else "not"
        raise GlocalError(f"{argument}={shown(raw)} is {count} one id for each row.")
    each = [i.item() if isinstance(i, np.generic) else i for i in raw]
    if len(each) != n:
        raise GlocalError(f"{argument} has {len(each)} ids for {n} rows: give one for each row.")
    kinds = set(map(type, each))
    if not (kinds == {str} and all(each)) and kinds != {int}:
        for row, i in enumerate(each):
            if _is_no_id(i):
                raise GlocalError(
                    f"{where(row)} has {shown(i)} as its {what} id: give a name or a number for "
                    "each row."
                )
            if missing(i):
                raise GlocalError(
                    f"{where(row)} has no {what} id: fill it in or leave the row out."
                )
    if not all(issubclass(kind, int) for kind in kinds):
        each = [str(i) for i in each]
    known = sorted(set(each))
    writable(known, f"the {what} id")
    index = {i: k for k, i in enumerate(known)}
    return torch.tensor([index[i] for i in each]), tuple(str(i) for i in known)


def _is_no_id(value: Any) -> bool:
    """Whether it is a list or infinite: names made of those would be no names, or all the same."""
    return isinstance(value, list | set | dict) or (isinstance(value, float) and math.isinf(value))


def writable(known: Iterable[Any], what: str) -> None:
    """Raise if a name cannot be written to a file."""
    for name in known:
        try:
            str(name).encode()
        except ValueError:  # half a character; an integer of thousands of digits
            raise GlocalError(
                f"{what} {shown(name)} cannot be written as text: give it another name."
            ) from None


def shares(split: Any) -> Shares:
    """Three positive shares that sum to 1."""
    given = split.tolist() if hasattr(split, "tolist") else split
    three = tuple(given) if isinstance(given, Iterable) else (given,)
    numeric = all(isinstance(s, numbers.Real) and not isinstance(s, bool) for s in three)
    if len(three) != 3 or not numeric or not all(s > 0 for s in three):
        raise GlocalError(
            f"split={shown(given)} should be three positive shares, of training, validation and "
            "test, such as (0.7, 0.1, 0.2): every client is evaluated on its own data."
        )
    if abs(math.fsum(three) - 1) > 1e-6:
        raise GlocalError(f"split={three} sums to {math.fsum(three):g}: make it sum to 1.")
    return float(three[0]), float(three[1]), float(three[2])
