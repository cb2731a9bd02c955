"""Data for a machine without a network: files that glocal reads from a folder, 40 MB at most each.

MNIST and CIFAR-10 are written in their published forms and compressed: CIFAR-10's six batches are
28 MB each, so that they can be sent one after another. Other data sets are copied from glocal's
cache.
"""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import numpy as np

from glocal.data.datasets import cache
from glocal.data.datasets.formats import BATCHES, IDX, Arrays
from glocal.data.datasets.image_dataset import arrays
from glocal.data.datasets.registry import CIFAR10, MNIST
from glocal.data.loading import load

OTHERS = ("adult", "dialysis", "chem97", "sotu", "shakespeare")


def pack(folder: Path) -> None:
    """Write everything that the tables need; what is not cached is fetched first."""
    pack_mnist(folder / "mnist", arrays(MNIST))
    pack_cifar10(folder / "cifar10", arrays(CIFAR10))
    for name in OTHERS:
        load(name)
        for path in cache.folder().glob(f"{name}*"):
            shutil.copy(path, folder / path.name)
    for path in sorted(folder.rglob("*.*")):
        if path.is_file():
            print(f"{path.relative_to(folder)}  {path.stat().st_size / 2**20:.1f} MB")


def pack_mnist(folder: Path, found: Arrays) -> None:
    """IDX files, compressed."""
    parts = (found["x_train"], found["y_train"], found["x_test"], found["y_test"])
    for name, values in zip(IDX.files, parts, strict=True):
        values = np.squeeze(values, 1) if values.ndim == 4 else values
        head = bytes([0, 0, 8, values.ndim])
        sizes = b"".join(size.to_bytes(4, "big") for size in values.shape)
        _compressed(folder / f"{name}.gz", head + sizes + values.tobytes())


def pack_cifar10(folder: Path, found: Arrays) -> None:
    """Binary batches, compressed: a label and the image's bytes, image after image."""
    size = len(found["x_test"])
    for i, name in enumerate(BATCHES):
        rows = slice(i * size, (i + 1) * size) if name != BATCHES[-1] else slice(None)
        part = "test" if name == BATCHES[-1] else "train"
        x, y = found[f"x_{part}"][rows], found[f"y_{part}"][rows]
        batch = np.concatenate([y[:, None], x.reshape(len(x), -1)], axis=1)
        _compressed(folder / f"{name}.bin.gz", batch.astype(np.uint8).tobytes())


def _compressed(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content, 6, mtime=0))
