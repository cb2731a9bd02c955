"""Data for a machine without a network: numbered folders of 52 MiB at most, sent one after another.

An image becomes what its neighbours to the left, above and between do not foretell of it (the
predictor of lossless JPEG, after green is taken from red and blue), in Huffman's code: CIFAR-10 is
102 MB so, where gzip leaves 170. Other data sets are copied from glocal's cache. On the other
machine, ``unpack`` puts the images into the cache, with their sha256 checked.
"""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glocal.core import locks
from glocal.data.datasets import cache
from glocal.data.datasets.image_dataset import ImageSet, arrays, check
from glocal.data.datasets.registry import CIFAR10, MNIST
from glocal.data.loading import load

IMAGES = {data.name: data for data in (MNIST, CIFAR10)}

AT_ONCE = 10_000
"""Images in a file."""

LIMIT = 52 * 2**20
"""Bytes in a folder."""

Bytes = NDArray[np.uint8]


def pack(folder: Path, names: Sequence[str]) -> None:
    """Write these data sets, small images first; what is not cached is fetched first."""
    files: list[tuple[str, bytes]] = []
    for name in sorted(names, key=[*IMAGES, *names].index):
        if name in IMAGES:
            files += packed(IMAGES[name])
            continue
        load(name)
        files += [(path.name, path.read_bytes()) for path in cache.folder().glob(f"{name}*")]
    number, filled = 1, 0
    for name, content in files:
        if filled and filled + len(content) > LIMIT:
            number, filled = number + 1, 0
        filled += len(content)
        path = folder / str(number) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        print(f"{number}/{name}  {len(content) / 2**20:.1f} MiB")


def packed(data: ImageSet) -> list[tuple[str, bytes]]:
    """A data set as files: of each the labels and the images of ``AT_ONCE`` examples."""
    found = arrays(data)
    files = []
    for name, part, rows in _files(data):
        x, y = found[f"x_{part}"][rows], found[f"y_{part}"][rows]
        if data.shape[0] == 3:
            coder = zlib.compressobj(9, zlib.DEFLATED, 15, 9, zlib.Z_HUFFMAN_ONLY)
            x = differences(x)
        else:  # mostly nothing, which Huffman's code alone gives a bit a pixel
            coder = zlib.compressobj(9)
        files.append((name, coder.compress(y.tobytes() + x.tobytes()) + coder.flush()))
    return files


def _files(data: ImageSet) -> list[tuple[str, str, slice]]:
    return [
        (f"{data.name}-{part}-{first // AT_ONCE}.z", part, slice(first, first + AT_ONCE))
        for part, count in zip(("train", "test"), data.counts, strict=True)
        for first in range(0, count, AT_ONCE)
    ]


def unpack(folder: Path) -> None:
    """Put the images that are packed here into the folder as a cache; other files beside them."""
    with locks.hold(folder, wait=120):
        for data in IMAGES.values():
            files = {path.name: path for path in folder.glob(f"*/{data.name}-*.z")}
            whole = all(name in files for name, _, _ in _files(data))
            if whole and not (folder / f"{data.name}.npz").exists():
                found = unpacked(data, files)
                check(data, found)
                cache.keep(data.name, found)
        for path in folder.glob("*/*"):
            if path.suffix != ".z" and not (folder / path.name).exists():
                shutil.copy(path, folder / path.name)


def unpacked(data: ImageSet, files: dict[str, Path]) -> dict[str, Bytes]:
    """The arrays of a data set from its files."""
    parts: dict[str, list[Bytes]] = {}
    for name, part, _ in _files(data):
        content = np.frombuffer(zlib.decompress(files[name].read_bytes()), np.uint8)
        count = len(content) // (1 + int(np.prod(data.shape)))
        y, x = content[:count], content[count:]
        images = of_differences(x, data.shape) if data.shape[0] == 3 else x
        parts.setdefault(f"x_{part}", []).append(images.reshape(count, *data.shape))
        parts.setdefault(f"y_{part}", []).append(y)
    return {key: np.concatenate(each) for key, each in parts.items()}


def differences(x: Bytes) -> Bytes:
    """[n, 3, height, width] as [height, width, 3, n], each less what is foretold of it."""
    turned = np.ascontiguousarray(x.transpose(2, 3, 1, 0))
    turned[:, :, 0] -= turned[:, :, 1]  # modulo 256, as everywhere here
    turned[:, :, 2] -= turned[:, :, 1]
    edged = np.pad(turned, ((1, 0), (1, 0), (0, 0), (0, 0)))
    return turned - _foretold(edged[1:, :-1], edged[:-1, 1:], edged[:-1, :-1])


def of_differences(found: Bytes, shape: Sequence[int]) -> Bytes:
    """The images again, a pixel of all of them at a time."""
    channels, height, width = shape
    each = found.reshape(height, width, channels, -1)
    edged = np.zeros((height + 1, width + 1, *each.shape[2:]), np.uint8)
    for i in range(height):
        for j in range(width):
            foretold = _foretold(edged[i + 1, j], edged[i, j + 1], edged[i, j])
            edged[i + 1, j + 1] = each[i, j] + foretold
    turned = edged[1:, 1:]
    turned[:, :, 0] += turned[:, :, 1]
    turned[:, :, 2] += turned[:, :, 1]
    return np.ascontiguousarray(turned.transpose(3, 2, 0, 1))


def _foretold(left: Bytes, above: Bytes, between: Bytes) -> Bytes:
    """A pixel by its neighbours: their plane, within what the two beside it are."""
    plane = left.astype(np.int16) + above - between
    low, high = np.minimum(left, above), np.maximum(left, above)
    foretold: Bytes = np.clip(plane, low, high).astype(np.uint8)
    return foretold
