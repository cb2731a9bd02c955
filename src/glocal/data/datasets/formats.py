"""File formats of image data sets, read from bytes: IDX, and the three of CIFAR-10.

No file can run code: what is pickled is read with stand-ins (:mod:`glocal.data.datasets.pickles`).
"""

from __future__ import annotations

import importlib.util
import io
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from glocal.core.errors import GlocalError
from glocal.data.datasets import pickles
from glocal.data.validation import Array

Arrays = dict[str, Array]
"""``x_train``, ``y_train``, ``x_test`` and ``y_test``, in uint8."""


@dataclass(frozen=True)
class Form:
    """Files that hold a data set together, and how they are read."""

    files: tuple[str, ...]
    read: Callable[[bytes, str], Any]
    """What is in one file, from its bytes and its name."""
    joined: Callable[..., Arrays]
    """The data set, from what is in all files, in their order."""
    pictures: bool = False
    """Whether Pillow is needed to read them."""

    def decode(self, files: Mapping[str, bytes]) -> Arrays:
        """The data set in these files."""
        return self.joined(*(self.read(files[name], name) for name in self.files))

    def check_readable(self) -> None:
        """Raise if something is missing to read them, before anything large is fetched."""
        if self.pictures and importlib.util.find_spec("PIL") is None:
            raise GlocalError(
                "the pictures of this package are read with Pillow: install it (pip install "
                "'glocal[data]'), or use files of another kind (see docs/reference/data.md)."
            )


def idx(data: bytes, name: str) -> Array:
    """An IDX file of bytes: 0, 0, 8, the number of dimensions, each as 4 bytes, then the values."""
    if data[:3] != b"\0\0\x08" or len(data) < 4:
        raise GlocalError(f"{name} is not an IDX file of bytes: fetch it again.")
    start = 4 + 4 * data[3]
    shape = [int.from_bytes(data[at : at + 4], "big") for at in range(4, start, 4)]
    if len(data) != start + math.prod(shape):
        raise GlocalError(
            f"{name} is {len(data)} bytes long and should be {start + math.prod(shape)}: it is cut "
            "off or damaged; fetch it again."
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def _grey(x_train: Array, y_train: Array, x_test: Array, y_test: Array) -> Arrays:
    """Grey images come without their one channel."""
    x_train, x_test = x_train[:, None], x_test[:, None]
    return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}


IDX = Form(
    (
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    ),
    idx,
    _grey,
)

BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
"""CIFAR-10's: five of training examples, one of test examples."""
IMAGE = (3, 32, 32)

Batch = tuple[Array, Array]


def _joined(*batches: Batch) -> Arrays:
    *train, (x_test, y_test) = batches
    x, y = (np.concatenate([batch[i] for batch in train]) for i in (0, 1))
    return {"x_train": x, "y_train": y, "x_test": x_test, "y_test": y_test}


def binary_batch(data: bytes, name: str) -> Batch:
    """CIFAR-10's binary version: a label and 3·32·32 values, 3,073 bytes an example."""
    size = 1 + math.prod(IMAGE)
    if not data or len(data) % size:
        raise GlocalError(
            f"{name} is {len(data)} bytes long, which is no multiple of {size}: it is cut off or "
            "damaged; fetch it again."
        )
    rows = np.frombuffer(data, np.uint8).reshape(-1, size)
    return rows[:, 1:].reshape(-1, *IMAGE), rows[:, 0]


CIFAR_BINARY = Form(tuple(f"{name}.bin" for name in BATCHES), binary_batch, _joined)


def pickled_batch(data: bytes, name: str) -> Batch:
    """CIFAR-10's Python version: a pickled dict with the array ``data`` and the list ``labels``."""
    try:
        batch = pickles.read(data, encoding="bytes")
        x = pickles.array(batch[b"data"]).reshape(-1, *IMAGE)
        if x.dtype != np.uint8:
            raise ValueError("not bytes")
        return x, np.array(batch[b"labels"], dtype=np.uint8)
    # A damaged or malicious pickle can fail in any way, MemoryError among them.
    except Exception:
        raise GlocalError(
            f"{name} is not a pickled batch of CIFAR-10's Python version (or holds more than data, "
            "which is not run): fetch it again, or the binary version."
        ) from None


CIFAR_PICKLED = Form(BATCHES, pickled_batch, _joined)


def png_rows(data: bytes, name: str) -> Array:
    """Images as the rows of one PNG: [n, 3, 32, 32], from n rows of 32·32 colours."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=("PNG",)) as picture:
            pixels = np.asarray(picture)
        _, height, width = IMAGE
        return pixels.reshape(-1, height, width, 3).transpose(0, 3, 1, 2)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        raise GlocalError(
            f"{name} is not a readable picture of {IMAGE[1] * IMAGE[2]} colours a row: fetch it "
            "again."
        ) from None


def _numbers(data: bytes, name: str) -> Array:
    try:
        return np.array(json.loads(data), dtype=np.uint8)
    except (ValueError, TypeError, OverflowError):
        raise GlocalError(f"{name} is not a list of labels: fetch it again.") from None


def _picture_or_labels(data: bytes, name: str) -> Array:
    return png_rows(data, name) if name.endswith(".png") else _numbers(data, name)


def _pictures(*parts: Array) -> Arrays:
    *train, x_test, y_train, y_test = parts
    x_train, x_test = np.concatenate(train), np.ascontiguousarray(x_test)
    return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}


CIFAR_PNG = Form(
    # The package does spell them so.
    (*(f"{name}.png" for name in BATCHES), "train_lables.json", "test_lables.json"),
    _picture_or_labels,
    _pictures,
    pictures=True,
)
