"""LEAF's JSON: users, and the examples of each.

Caldas et al.: *LEAF: a benchmark for federated settings*, 2018. A file has ``users`` and, in
``user_data``, the lists ``x`` and ``y`` of each. What ``x`` holds says which task it is:

=========================================  ================================================
lists of numbers (FEMNIST, synthetic)      inputs; of 784 numbers, an image of 1×28×28
text, and a character (Shakespeare)        characters, and the one that comes next
sequences of words (Reddit)                words, and the next one at every position
names of files (CelebA)                    images in the folder ``images=``
=========================================  ================================================

The folders ``train`` and ``test`` are the splits: clients validate on some of their training rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from glocal.core.errors import GlocalError, shown
from glocal.core.padding import IGNORED, PAD
from glocal.core.progress import print_note
from glocal.core.validation import integer
from glocal.data import validation as check
from glocal.data.datasets import Source
from glocal.data.folders import images as image_files
from glocal.data.folders import layout
from glocal.data.text.vocabulary import UNKNOWN, Ids, Vocabulary
from glocal.data.text.vocabulary import labels as known_labels
from glocal.data.validation import Array, Pixels

PARTS = ("train", "test")
PADDING = "<PAD>"
SQUARE = 28 * 28
"""Numbers of one of FEMNIST's images."""


@dataclass
class Rows:
    """The examples of all files, one after the other."""

    x: list[Any] = field(default_factory=list)
    y: list[Any] = field(default_factory=list)
    client: list[str] = field(default_factory=list)
    part: list[str] = field(default_factory=list)

    def training(self) -> list[int]:
        """The rows that a vocabulary may be fitted on; all, where nothing says which."""
        return [i for i, part in enumerate(self.part) if part != "test"]


def leaf(
    folder: str,
    images: str | None = None,
    size: int | None = None,
    vocabulary: int = 10_000,
) -> Source:
    """LEAF's JSON by user, in a folder: FEMNIST, Shakespeare, Reddit, CelebA, synthetic.

    Args:
        folder: that with train and test, or with the .json files.
        images: the folder of the images that examples name, of CelebA.
        size: the height and the width to which these are resized.
        vocabulary: of text, the largest number of tokens.
    """
    integer(vocabulary, "vocabulary of leaf", 3, check.MOST_CLASSES)
    root = layout.root_of(folder, "LEAF's files")
    rows = Rows()
    for path, part in _files(root):
        _read(path, part, rows)
    if images is not None:
        return _of_images(rows, layout.root_of(images, "images"), size)
    if all(isinstance(x, str) and isinstance(y, str) for x, y in zip(rows.x, rows.y, strict=True)):
        return _of_characters(rows, vocabulary)
    if all(isinstance(y, dict) for y in rows.y):
        return _of_words(rows, vocabulary)
    if isinstance(rows.x[0], str):
        raise GlocalError(
            f"{shown(folder)} names its images, such as {shown(rows.x[0])}: say which folder they "
            "are in with images=."
        )
    return _of_numbers(rows)


def is_there(folder: Path) -> bool:
    """Whether a folder has files of this format."""
    found = next(iter(_found(folder)), None)
    if found is None:
        return False
    with found[0].open("rb") as file:
        return b'"users"' in file.read(2**16) or b'"user_data"' in found[0].read_bytes()


def _found(root: Path) -> list[tuple[Path, str]]:
    """The files, with their parts: train and test, or "" where they are not split."""
    for inside in (root, root / "data"):
        split = [(p, part) for part in PARTS for p in sorted((inside / part).glob("*.json"))]
        if split:
            return split
    for inside in (root, root / "data" / "all_data", root / "all_data"):
        if whole := [(p, "") for p in sorted(inside.glob("*.json"))]:
            return whole
    return []


def _files(root: Path) -> list[tuple[Path, str]]:
    found = _found(root)
    if not found:
        raise GlocalError(
            f"{shown(str(root))} has no .json files, and none in train and test: check the path."
        )
    parts = {part for _, part in found}
    if len(parts) == 1 and "" not in parts:
        lacking = next(part for part in PARTS if part not in parts)
        raise GlocalError(f"{shown(str(root))} has no .json files in {lacking}: put them there.")
    return found


def _read(path: Path, part: str, rows: Rows) -> None:
    try:
        content = json.loads(path.read_bytes())
    except json.JSONDecodeError as error:
        raise GlocalError(
            f"{path.name} is not JSON (line {error.lineno}, column {error.colno}: {error.msg}): it "
            "is cut off or damaged."
        ) from None
    except (OSError, ValueError, RecursionError):
        raise GlocalError(f"{path.name} cannot be read as JSON: it is damaged.") from None
    for user, x, y in _users(content, path.name):
        rows.x += x
        rows.y += y
        rows.client += [user] * len(x)
        rows.part += [part] * len(x)


def _users(content: Any, name: str) -> Iterator[tuple[str, list[Any], list[Any]]]:
    data = content.get("user_data") if isinstance(content, dict) else None
    if not isinstance(data, dict) or not data:
        raise GlocalError(f"{name} has no users in user_data, so it is none of LEAF's files.")
    for user in content.get("users", list(data)):
        own = data.get(user)
        x, y = (own.get("x"), own.get("y")) if isinstance(own, dict) else (None, None)
        if not isinstance(x, list) or not isinstance(y, list):
            raise GlocalError(f"user {shown(user)} of {name} has no lists x and y.")
        if len(x) != len(y):
            raise GlocalError(
                f"user {shown(user)} of {name} has {len(x)} entries in x and {len(y)} in y: give "
                "one label for each."
            )
        if not x:
            raise GlocalError(f"user {shown(user)} of {name} has no examples: leave it out.")
        yield str(user), x, y


def _source(
    rows: Rows, x: Any, y: Array, chosen: Sequence[int] | None = None, **about: Any
) -> Source:
    """The source of rows, or of those chosen, one for each of ``y``."""
    places = range(len(rows.client)) if chosen is None else chosen
    client = [rows.client[i] for i in places]
    parts = None if "" in rows.part else np.array([rows.part[i] for i in places])
    return Source(x=x, y=y, clients=client, parts=parts, **about)


def _of_numbers(rows: Rows) -> Source:
    try:
        x, y = np.array(rows.x, np.float32), np.array(rows.y)
        if y.ndim != 1 or y.dtype.kind not in "iuf":
            raise ValueError("labels")
    except (ValueError, TypeError):
        raise GlocalError(
            "x holds neither numbers of one length, nor text with the next character, nor "
            "sequences of words, nor names of images: this is none of LEAF's tasks."
        ) from None
    if x.shape[1:] == (SQUARE,):
        x = x.reshape(-1, 1, 28, 28)
    return _source(rows, x, y)


def _of_images(rows: Rows, folder: Path, size: int | None) -> Source:
    try:
        paths = [folder / str(name) for name in rows.x]
        y = np.array(rows.y).astype(np.int64)
    except (ValueError, TypeError):
        raise GlocalError("y of images should be a class, 0 or more, for each.") from None
    return _source(rows, Pixels(image_files.pixels(paths, size)), y)


def _of_characters(rows: Rows, size: int) -> Source:
    """Windows of characters, and the next; those whose next is unknown are left out."""
    _say_overlap(rows)
    fit = (rows.x[i] + rows.y[i] for i in rows.training())
    known = Vocabulary.fitted((list(text) for text in fit), size)
    longest = max(len(text) for text in rows.x)
    x = np.full((len(rows.x), longest), PAD, np.int64)
    for i, text in enumerate(rows.x):
        x[i, : len(text)] = known.ids(list(text))
    y = known.ids([label[:1] for label in rows.y])
    told = (y != UNKNOWN).nonzero()[0]
    about = {"classes": len(known), "labels": known.tokens, "vocabulary": len(known)}
    return _source(rows, x[told], y[told], told.tolist(), **about)


def _of_words(rows: Rows, size: int) -> Source:
    """Sequences of words, and the next word at every position."""
    _say_overlap(rows)
    inputs: list[list[str]] = []
    targets: list[list[str]] = []
    whose: list[int] = []
    for i, (x, y) in enumerate(zip(rows.x, rows.y, strict=True)):
        sequences = y.get("target_tokens")
        if not _is_words(x) or not _is_words(sequences) or len(x) != len(sequences):
            raise GlocalError(
                f"an example of user {shown(rows.client[i])} has no sequences of words in x and in "
                "target_tokens of y: this is none of LEAF's tasks."
            )
        inputs += x
        targets += sequences
        whose += [i] * len(x)
    training = set(rows.training())
    fit = [
        [w for w in s if w != PADDING] for s, i in zip(inputs, whose, strict=True) if i in training
    ]
    known = Vocabulary.fitted(fit, size)
    longest = max(map(len, inputs))
    x = _padded(inputs, longest, known, PAD)
    y = _padded(targets, longest, known, IGNORED)
    told = (y != IGNORED).any(1).nonzero()[0]
    about = {"classes": len(known), "labels": known.tokens, "vocabulary": len(known)}
    return _source(rows, x[told], y[told], [whose[i] for i in told.tolist()], **about)


def _is_words(given: Any) -> bool:
    return isinstance(given, list) and all(
        isinstance(each, list) and all(isinstance(word, str) for word in each) for each in given
    )


def _padded(sequences: Sequence[Sequence[str]], length: int, known: Vocabulary, fill: int) -> Ids:
    out = np.full((len(sequences), length), fill, np.int64)
    for i, words in enumerate(sequences):
        ids = known.ids(words[:length])
        ids[np.array([word == PADDING for word in words[:length]], bool)] = PAD
        out[i, : len(ids)] = ids if fill == PAD else known_labels(ids)
    return out


def _say_overlap(rows: Rows) -> None:
    if "" in rows.part:
        print_note(
            "LEAF's windows of text may overlap, and nothing says which are for testing: with "
            "chronological= each client is tested on its last."
        )
