"""CIFAR-100 as it is published for Python: the pickles ``train`` and ``test``.

Krizhevsky: *Learning multiple layers of features from tiny images*, 2009. The pickles are read with
stand-ins (:mod:`glocal.data.datasets.pickles`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from glocal.core.errors import GlocalError, shown
from glocal.data.datasets import Source, archives, pickles
from glocal.data.datasets.formats import IMAGE
from glocal.data.folders import layout
from glocal.data.validation import Array, Pixels

ARCHIVE, FOLDER = "cifar-100-python.tar.gz", "cifar-100-python"
FILES = ("train", "test", "meta")
CLASSES = {"fine": 100, "coarse": 20}


def is_there(folder: Path) -> bool:
    """Whether a folder has the files, or the archive."""
    inside = any(all((f / name).is_file() for name in FILES) for f in (folder, folder / FOLDER))
    return inside or (folder / ARCHIVE).is_file()


def cifar100(folder: str, labels: str = "fine", examples: int | None = None) -> Source:
    """CIFAR-100 from a folder of yours: 3×32×32, 100 classes or 20 coarse ones, and a test set.

    Args:
        folder: where cifar-100-python.tar.gz is, or what is in it.
        labels: ``fine`` (100 classes) or ``coarse`` (20).
        examples: the first so many of the training set.
    """
    if labels not in CLASSES:
        raise GlocalError(f"labels={shown(labels)} of cifar100 should be fine or coarse.")
    root = layout.root_of(folder, "CIFAR-100")
    files = _files(root)
    (x, y), (x_test, y_test) = (_batch(files[name], name, labels) for name in ("train", "test"))
    names = _names(files["meta"], labels)
    return Source(
        x=Pixels(x[:examples]),
        y=y[:examples],
        classes=CLASSES[labels],
        central=(Pixels(x_test), y_test),
        labels=names,
    )


def _files(root: Path) -> dict[str, bytes]:
    for inside in (root, root / FOLDER):
        if all((inside / name).is_file() for name in FILES):
            return {name: _read(inside / name) for name in FILES}
    if not (root / ARCHIVE).is_file():
        raise GlocalError(
            f"{shown(str(root))} has neither {ARCHIVE} nor its files {', '.join(FILES)}: put them "
            "there."
        )
    found = archives.in_archive(root / ARCHIVE, FILES, LARGEST)
    if lacking := [name for name in FILES if name not in found]:
        raise GlocalError(f"{ARCHIVE} lacks {', '.join(lacking)}: fetch it again.")
    return found


LARGEST = 256 * 2**20
"""The largest file in bytes: the training images are 155 MB."""


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise GlocalError(f"{shown(str(path))} cannot be read ({error.strerror}).") from None


def _batch(content: bytes, name: str, labels: str) -> tuple[Array, Array]:
    try:
        batch = pickles.read(content, encoding="bytes")
        x = pickles.array(batch[b"data"]).reshape(-1, *IMAGE)
        y = np.array(batch[f"{labels}_labels".encode()], dtype=np.int64)
        if x.dtype != np.uint8 or y.shape != (len(x),) or y.max() >= CLASSES[labels]:
            raise ValueError("not images with labels")
    except Exception:  # a damaged or malicious pickle can fail in any way
        raise GlocalError(
            f"{name} is not a pickled file of CIFAR-100 (or holds more than data, which is not "
            "run): fetch it again."
        ) from None
    return x, y


def _names(content: bytes, labels: str) -> tuple[str, ...]:
    """What classes are called; numbers, if the file does not say."""
    try:
        meta: dict[bytes, Any] = pickles.read(content, encoding="bytes")
        return tuple(name.decode() for name in meta[f"{labels}_label_names".encode()])
    except Exception:
        return ()
