"""A text data set: where its files are found, and their validation.

The files are looked for as those of images are (:mod:`glocal.data.datasets.locating`). What is
cached and has the right sha256 is what was read from them, each client's passages in order.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from glocal.core.errors import GlocalError
from glocal.data.datasets import archives, cache
from glocal.data.datasets.formats import Arrays
from glocal.data.datasets.locating import DataFiles, located, remedy
from glocal.data.datasets.packages import fetched
from glocal.data.text.passages import Passages

CONTENT = "content"
"""The one array of a text: bytes."""


@dataclass(frozen=True)
class Matching:
    """The names of files that match a pattern, as something that they are in or not."""

    pattern: str

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and re.fullmatch(self.pattern, name) is not None


@dataclass(frozen=True, kw_only=True)
class TextSet(DataFiles):
    """The description of a text data set: its content, its files and its package."""

    files: Matching
    counts: tuple[int, int]
    """Files, and clients."""
    sha256: str
    """Of the passages as bytes."""
    read: Callable[[Mapping[str, bytes]], Passages]


def passages(data: TextSet, folder: str | None = None) -> Passages:
    """The text: from the folder, or GLOCAL_DATA, or the cache, or its package."""
    reading = (partial(in_folder, data), partial(check, data), partial(from_package, data))
    arrays = located(data, folder, *reading)
    return Passages.from_bytes(arrays[CONTENT].tobytes())


def check(data: TextSet, arrays: Arrays) -> None:
    """Raise unless this is the text of the data set, by its clients and its sha256."""
    content = arrays.get(CONTENT)
    if content is None or content.dtype != np.uint8 or content.ndim != 1:
        raise GlocalError(f"this is not {data.name}: it has no text.")
    clients = len(Passages.from_bytes(content.tobytes()).clients)
    if clients != data.counts[1]:
        raise GlocalError(
            f"this is not {data.name}: it should have {data.counts[1]} clients and has {clients}."
        )
    if hashlib.sha256(np.ascontiguousarray(content).data).hexdigest() != data.sha256:
        raise GlocalError(
            f"this is not {data.name}: its sha256 is another; the files are damaged or of another "
            f"edition, so put the right ones into a folder {data.folders[0]!r}."
        )


def in_folder(data: TextSet, folder: Path) -> Arrays | None:
    """Read the text from a folder; None if it has none of the files."""
    for subfolder in (*(folder / name for name in data.folders), folder):
        for name in data.archives:
            if (archive := subfolder / name).is_file():
                return _from_archive(data, archive, f"{archive}: ")
        if not subfolder.is_dir():
            continue
        names = sorted({path.name.removesuffix(".gz") for path in subfolder.iterdir()})
        paths = archives.in_folder(subfolder, [name for name in names if name in data.files])
        if paths:
            files = {name: archives.read(path) for name, path in paths.items()}
            return _checked(data, files, f"{subfolder}: ")
    return None


def from_package(data: TextSet) -> Arrays:
    """Download the package, read the text and cache it."""
    with fetched(data.package, remedy(data)) as archive:
        found = _from_archive(data, archive, "")
    cache.keep(data.name, found)
    return found


def _from_archive(data: TextSet, archive: Path, where: str) -> Arrays:
    return _checked(data, archives.in_archive(archive, data.files), where)


def _checked(data: TextSet, files: Mapping[str, bytes], where: str) -> Arrays:
    if len(files) != data.counts[0]:
        raise GlocalError(
            f"{where}{len(files)} files of {data.name} are there, and it has {data.counts[0]}: "
            f"{remedy(data)}."
        )
    arrays = {CONTENT: np.frombuffer(data.read(files).to_bytes(), np.uint8)}
    try:
        check(data, arrays)
    except GlocalError as error:
        raise GlocalError(f"{where}{error}") from None
    return arrays
