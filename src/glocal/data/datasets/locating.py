"""Where a data set by name is found: the user's folder, the cache, or a package."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from glocal.core.errors import GlocalError
from glocal.data.datasets import cache
from glocal.data.datasets.formats import Arrays
from glocal.data.datasets.packages import Package


class Located(Protocol):
    """What has to be known of a data set to find it."""

    @property
    def name(self) -> str:
        """As in ``--data``."""

    @property
    def wanted(self) -> str:
        """The files to put into a folder, for messages."""

    @property
    def installed(self) -> Path | None:
        """Where the package puts the files if it is installed."""


@dataclass(frozen=True, kw_only=True)
class DataFiles:
    """What has to be known to find a data set that a folder or an archive may hold."""

    name: str
    folders: tuple[str, ...]
    """Usual names of a folder with the files."""
    package: Package
    wanted: str
    """The files to put into a folder, for messages."""
    archives: tuple[str, ...] = ()
    """Usual names of an archive with the files."""
    installed: Path | None = None
    """Where the package puts the files if it is installed."""


def located(
    data: Located,
    folder: str | None,
    in_folder: Callable[[Path], Arrays | None],
    check: Callable[[Arrays], None],
    from_package: Callable[[], Arrays],
    from_hub: Callable[[], Arrays | None] = lambda: None,
) -> Arrays:
    """The data set: from the folder, or GLOCAL_DATA, or a cache, or its package.

    ``in_folder`` reads it from a folder, and gives None where nothing of it is
    there; ``check`` raises unless arrays are those of the data set; ``from_hub`` reads it from
    another program's cache, where that has it.
    """
    if folder is not None:
        found = in_folder(_existing(Path(folder).expanduser(), "folder="))
        if found is None:
            raise GlocalError(f"{folder!r} has no files of {data.name}: put {data.wanted} there.")
        return found
    if own := os.environ.get("GLOCAL_DATA"):
        found = in_folder(_existing(Path(own).expanduser(), "GLOCAL_DATA"))
        if found is not None:
            return found
    found = cache.kept(data.name, check)
    if found is None and data.installed is not None and data.installed.is_dir():
        found = in_folder(data.installed)
    if found is None:
        found = from_hub()
    return from_package() if found is None else found


def remedy(data: Located) -> str:
    """What a user can do without the package."""
    return f"put {data.wanted} into a folder and set GLOCAL_DATA to it"


def _existing(folder: Path, named_by: str) -> Path:
    if not folder.is_dir():
        raise GlocalError(f"{named_by} names {str(folder)!r}, which is no folder: check the path.")
    return folder
