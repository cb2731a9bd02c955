"""Pickles read without running anything: every name that one calls becomes a stand-in.

A pickle is a program that may call any function it names. Here a name from the list below becomes
a :class:`StandIn`, which keeps the arguments and the state it is given and calls nothing; any other
name is an error. Arrays and the columns of a table are then made from what the stand-ins keep.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np

from glocal.data.validation import Array

NAMES = frozenset(
    (
        *("_reconstruct", "ndarray", "dtype", "_frombuffer", "slice"),
        *("DataFrame", "BlockManager", "_unpickle_block", "_new_Index", "Index", "RangeIndex"),
        *("__pyx_unpickle_NDArrayBacked", "Categorical", "CategoricalDtype"),
        *("IntegerArray", "Int32Dtype"),
    )
)
"""The functions and classes of numpy and pandas that pickled arrays and tables name."""

ROOTS = ("numpy", "pandas", "builtins")
"""The packages that they are in."""

NUMBERS = "biuf"
"""Kinds of numpy's types that are numbers."""


class StandIn:
    """What a pickle would have called: its name, its arguments, and the state set afterwards."""

    name = ""
    args: tuple[Any, ...] = ()
    state: Any = None

    def __new__(cls, *args: Any) -> StandIn:
        """A stand-in that keeps its arguments."""
        made = super().__new__(cls)
        made.args = args
        return made

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):
            return _bytes
        if module.partition(".")[0] not in ROOTS or name not in NAMES:
            raise pickle.UnpicklingError(f"{module}.{name} is not data")
        return type(name, (StandIn,), {"name": name})


def _bytes(text: str, codec: str) -> bytes:
    """Bytes as the second version of the format has them; the codec is always this one."""
    return text.encode("latin1")


def read(content: bytes, encoding: str = "ASCII") -> Any:
    """What is pickled, with stand-ins; whatever is no data raises."""
    return _Reader(io.BytesIO(content), encoding=encoding).load()


def array(made: Any) -> Array:
    """A pickled array of numbers or of words; ValueError for anything else."""
    if getattr(made, "name", "") == "_frombuffer":  # bytes, type, shape, order
        content, kind, shape, order = made.args
        return _numbers(content, kind, shape, order)
    # The state of an array: version, shape, type, whether in Fortran order, bytes or a list.
    _, shape, kind, fortran, content = made.state
    if isinstance(content, list):
        values = np.empty(len(content), dtype=object)
        values[:] = content
        return values.reshape(shape, order="F" if fortran else "C")
    return _numbers(content, kind, shape, "F" if fortran else "C")


def _numbers(content: Any, kind: Any, shape: tuple[int, ...], order: str) -> Array:
    named = np.dtype(_text(kind.args[0]))
    if named.kind not in NUMBERS or not isinstance(content, bytes | bytearray):
        raise ValueError("no numbers")
    if len(content) != named.itemsize * math.prod(shape):
        raise ValueError("another length than the shape says")
    big = kind.state is not None and _text(kind.state[1]) == ">"
    values = np.frombuffer(bytes(content), named.newbyteorder(">" if big else "<"))
    return values.reshape(shape, order="F" if _text(order) == "F" else "C")


def _text(value: Any) -> str:
    """Text, which Python 2 pickled as bytes."""
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


def columns(frame: Any) -> dict[str, Array]:
    """The columns of a pickled DataFrame by name."""
    blocks, (names, _) = frame.state["_mgr"].args
    found: dict[int, Array] = {}
    for block in blocks:
        values, places, _ = block.args
        rows = _values(values)
        rows = rows[None] if rows.ndim == 1 else rows
        where = range(*places.args) if places.name == "slice" else array(places).tolist()
        found.update(zip(where, rows, strict=True))
    return {str(name): found[i] for i, name in enumerate(_index(names).tolist())}


def _values(made: Any) -> Array:
    """The values of a block: an array, or the categories that codes name."""
    if made.name != "__pyx_unpickle_NDArrayBacked":
        return array(made)
    kind, codes, _ = made.state
    known = _index(kind.state["categories"])
    return known[array(codes)]


def _index(made: Any) -> Array:
    data = made.args[1]["data"]
    state: Mapping[str, Any] | Any = data.state
    return array(state["_data"]) if isinstance(state, Mapping) else array(data)
