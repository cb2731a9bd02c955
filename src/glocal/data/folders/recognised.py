"""A folder's data, by what is in it.

A folder is recognised by what is in it, or named with its settings, as in
``images('scans', size=32)``.
"""

from __future__ import annotations

from pathlib import Path

from glocal.core.errors import GlocalError, shown
from glocal.data.datasets import Source
from glocal.data.folders import audio, cifar100, images, layout, leaf

LAYOUTS = (
    "LEAF's JSON (train/*.json and test/*.json), images or .wav files in folders by class, or by "
    "client and class, or CIFAR-100's train, test and meta"
)


def recognised(folder: Path) -> Source:
    """The data in a folder, in whatever layout it has."""
    if cifar100.is_there(folder):
        return cifar100.cifar100(str(folder))
    if leaf.is_there(folder):
        return leaf.leaf(str(folder))
    if layout.has_any(folder, images.ENDINGS):
        return images.images(str(folder))
    if layout.has_any(folder, audio.ENDINGS):
        return audio.audio(str(folder))
    raise GlocalError(
        f"the folder {shown(str(folder))} has no data of a known layout: give {LAYOUTS}; or a file "
        "with a table."
    )
