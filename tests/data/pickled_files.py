"""Pickled tables as older pandas wrote them, put together by hand: no pandas is asked."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Code = bytes
"""A piece of a pickle that leaves one value on the stack."""


def value(plain: Any) -> Code:
    return pickle.dumps(plain, protocol=2)[2:-1]


def several(*codes: Code) -> Code:
    return b"(" + b"".join(codes) + b"t"


def named(codes: Mapping[str, Code]) -> Code:
    return b"}(" + b"".join(value(key) + code for key, code in codes.items()) + b"u"


def call(module: str, name: str, *args: Code, state: Code = b"") -> Code:
    return f"c{module}\n{name}\n".encode() + several(*args) + b"R" + (state and state + b"b")


def dtype(kind: str, order: str = "<") -> Code:
    facts = value((3, order, None, None, None, -1, -1, 0))
    return call("numpy", "dtype", value(kind), value(False), value(True), state=facts)


def numbers(array: np.ndarray) -> Code:
    kind = f"{array.dtype.kind}{array.dtype.itemsize}"
    facts = (value(array.tobytes()), dtype(kind), value(array.shape), value("C"))
    return call("numpy.core.numeric", "_frombuffer", *facts)


def words(array: Sequence[str], shape: tuple[int, ...]) -> Code:
    state = several(value(1), value(shape), dtype("O8", "|"), value(False), value(list(array)))
    empty = (value(None), value((0,)), value(b"b"))
    return call("numpy.core.multiarray", "_reconstruct", *empty, state=state)


def index(names: Sequence[str]) -> Code:
    data = named({"data": words(names, (len(names),)), "name": value(None)})
    return call("pandas.core.indexes.base", "_new_Index", value(None), data)


def categories(column: Sequence[str]) -> Code:
    known = sorted(set(column))
    codes = np.array([known.index(word) for word in column], np.int8)
    kind = call(
        *("pandas.core.dtypes.dtypes", "CategoricalDtype"),
        state=named({"categories": index(known), "ordered": value(False)}),
    )
    state = several(kind, numbers(codes), value({}))
    name = "__pyx_unpickle_NDArrayBacked"
    return call("pandas._libs.arrays", name, value(None), value(0), value(None), state=state)


def frame(columns: Mapping[str, np.ndarray], categorical: Sequence[str] = ()) -> bytes:
    """A DataFrame with a block for each column."""
    blocks = []
    for i, (name, column) in enumerate(columns.items()):
        if name in categorical:
            made = categories(column.tolist())
        elif column.dtype == object:
            made = words(column.tolist(), (1, len(column)))
        else:
            made = numbers(column[None])
        place = call("builtins", "slice", value(i), value(i + 1), value(1))
        blocks.append(call("pandas._libs.internals", "_unpickle_block", made, place, value(2)))
    axes = several(index(list(columns)), value(None))
    manager = call("pandas.core.internals.managers", "BlockManager", several(*blocks), axes)
    state = named({"_mgr": manager, "_typ": value("dataframe")})
    return b"\x80\x02" + call("pandas.core.frame", "DataFrame", state=state) + b"."
