"""The cache of downloaded and verified arrays: one ``.npz`` file per data set."""

from __future__ import annotations

import os
import uuid
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from glocal.core.errors import GlocalError
from glocal.core.files import replacing
from glocal.core.progress import print_note
from glocal.data.datasets.formats import Arrays


def folder() -> Path:
    """``GLOCAL_CACHE``, or ``glocal`` in the user's cache folder."""
    if own := os.environ.get("GLOCAL_CACHE"):
        return Path(own).expanduser()
    user = os.environ.get("XDG_CACHE_HOME")
    return (Path(user) if user else Path.home() / ".cache") / "glocal"


def kept(name: str, check: Callable[[Arrays], None]) -> Arrays | None:
    """The cached arrays of a data set, or None and a note where ``check`` raises."""
    path = folder() / f"{name}.npz"
    if not path.is_file():
        return None
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
        check(arrays)
    except (GlocalError, ValueError, TypeError, OSError, EOFError, zipfile.BadZipFile, zlib.error):
        print_note(f"{path} is damaged, so the data is fetched again.")
        return None
    return arrays


def keep(name: str, arrays: Arrays) -> None:
    """Write a data set's arrays to the cache, atomically."""
    where = folder()
    try:
        where.mkdir(parents=True, exist_ok=True)
        # Others may write theirs at the same time.
        with replacing(where / f"{name}.npz", f"{name}-{uuid.uuid4().hex}.part") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        print_note(f"{name} is checked and kept in {where}.")
    except OSError as error:
        print_note(
            f"{name} could not be kept in {where} ({error.strerror}), so it is fetched every time: "
            "set GLOCAL_CACHE to a folder that can be written."
        )
