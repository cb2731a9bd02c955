"""Image data sets in the cache that the Hugging Face hub's client keeps on disk.

Its folders are ``datasets--OWNER--NAME/snapshots/COMMIT``, and the images are PNG files in the rows
of Parquet tables. Only what is there is read: nothing is fetched. What it holds is checked as files
from anywhere are, so rows in another order are refused.
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glocal.core.errors import GlocalError
from glocal.core.progress import print_note
from glocal.data.datasets.formats import Arrays
from glocal.data.validation import Array


@dataclass(frozen=True)
class HubSet:
    """A data set of the hub: whose it is, and its columns."""

    repository: str
    image: str
    label: str = "label"


def folder() -> Path:
    """Where the hub's client keeps what it fetched."""
    if own := os.environ.get("HF_HUB_CACHE"):
        return Path(own).expanduser()
    home = os.environ.get("HF_HOME")
    return (Path(home).expanduser() if home else Path.home() / ".cache" / "huggingface") / "hub"


def kept(data: HubSet) -> Arrays | None:
    """The data set, if the hub's cache has it and pyarrow and Pillow can read it; else none."""
    snapshots = folder() / f"datasets--{data.repository.replace('/', '--')}" / "snapshots"
    for snapshot in sorted(snapshots.glob("*"), reverse=True):
        parts = {part: sorted(snapshot.rglob(f"{part}-*.parquet")) for part in ("train", "test")}
        if not all(parts.values()):
            continue
        try:
            return {
                f"{which}_{part}": values
                for part, paths in parts.items()
                for which, values in zip("xy", _read(data, paths), strict=True)
            }
        except ImportError as error:
            print_note(f"{snapshot} is passed over, as it takes {error.name} to read it.")
        except Exception as error:  # a damaged table or picture raises almost anything
            print_note(f"{snapshot} is damaged ({type(error).__name__}) and is passed over.")
    return None


def _read(data: HubSet, paths: list[Path]) -> tuple[Array, Array]:
    import pyarrow.parquet as parquet
    from PIL import Image

    def pixels(cell: Any) -> Array:
        with Image.open(io.BytesIO(cell["bytes"]), formats=("PNG",)) as picture:
            values = np.asarray(picture)
        return values[None] if values.ndim == 2 else values.transpose(2, 0, 1)

    images, labels = [], []
    for path in paths:
        table = parquet.read_table(path, columns=[data.image, data.label]).to_pydict()
        images += [pixels(cell) for cell in table[data.image]]
        labels += table[data.label]
    if not images:
        raise GlocalError("no rows")
    return np.stack(images), np.array(labels, dtype=np.uint8)
