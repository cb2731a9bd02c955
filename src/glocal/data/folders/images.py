"""Images in folders (:mod:`glocal.data.folders.layout`), read with Pillow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glocal.core.errors import GlocalError
from glocal.core.validation import integer
from glocal.data.datasets import Source
from glocal.data.folders import layout, source
from glocal.data.validation import Array

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")

GREY = ("1", "L", "LA", "I", "I;16", "F")
"""Pillow's modes of images without colours."""


def images(folder: str, size: int | None = None, grey: bool = False) -> Source:
    """Image files by class, ``class/file``, or by client, ``client/class/file``, in a folder.

    Args:
        folder: the outermost one.
        size: the height and the width to which all images are resized; by default all must have
            one size.
        grey: whether colours are made grey.
    """
    root = layout.root_of(folder, "images")
    found = layout.placed(root, ENDINGS, "images")
    return source.of(pixels([each.path for each in found], size, grey=grey), found, "images")


def pixels(paths: Sequence[Path], size: int | None, *, grey: bool = False) -> Array:
    """Images as bytes [n, channels, height, width]; one channel where all of them are grey."""
    if size is not None:
        integer(size, "the size of images", 1, 1024)
    opened = _pillow()
    coloured = not grey and any(_mode(opened, path) not in GREY for path in paths)
    mode = "RGB" if coloured else "L"
    out: Array | None = None
    for i, path in enumerate(paths):
        values = _read(opened, path, mode, size)
        if out is None:
            out = np.empty((len(paths), *values.shape), np.uint8)
        if values.shape != out.shape[1:]:
            (_, height, width), (_, tall, wide) = values.shape, out.shape[1:]
            raise GlocalError(
                f"{layout.named(path)} is {width}×{height} and {layout.named(paths[0])} is "
                f"{wide}×{tall}: give a size to which all are resized, as in size=32."
            )
        out[i] = values
    assert out is not None
    return out


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise GlocalError(
            "images are read with Pillow, which is not installed: run pip install 'glocal[data]'."
        ) from None
    return Image


def _mode(opened: Any, path: Path) -> str:
    try:
        with opened.open(path) as picture:
            return str(picture.mode)
    except Exception:  # a damaged image raises almost anything
        raise _unreadable(path) from None


def _read(opened: Any, path: Path, mode: str, size: int | None) -> Array:
    try:
        with opened.open(path) as picture:
            plain = picture.convert(mode)
            if size is not None:
                plain = plain.resize((size, size), opened.Resampling.BILINEAR)
            values = np.asarray(plain)
    except Exception:
        raise _unreadable(path) from None
    return values[None] if values.ndim == 2 else values.transpose(2, 0, 1)


def _unreadable(path: Path) -> GlocalError:
    return GlocalError(
        f"{layout.named(path)} cannot be read as an image: it is damaged, missing or of another "
        "kind; put it right or leave it out."
    )
