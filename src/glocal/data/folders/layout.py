"""Files in folders: whose each is, of which class, and in which part.

The folders below a root say it, from the outside in::

    class/file                    no clients: they are simulated
    client/class/file             clients of the data's own
    train/…, val/…, test/…        before or after the client: which rows train, validate and test

Names that begin with ``.`` or ``_`` are passed over.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from glocal.core.errors import GlocalError, shown
from glocal.data.given_split import PARTS, WORDS


@dataclass(frozen=True)
class Placed:
    """A file, and what its folders say."""

    path: Path
    label: str
    client: str | None
    part: str | None
    """``train``, ``val`` or ``test``."""


def named(path: Path) -> str:
    """A file in a message: its name, and the two folders that it is in."""
    return shown("/".join(path.parts[-3:]))


def root_of(folder: str, what: str) -> Path:
    """The folder that a user names, which must be one."""
    root = Path(folder).expanduser()
    if not os.path.isdir(root):  # Path.is_dir raises where a name is too long
        raise GlocalError(f"there is no folder {shown(folder)} of {what}: check the path.")
    return root


def has_any(folder: Path, endings: Sequence[str]) -> bool:
    """Whether some file in a folder, or below it, has one of these endings."""
    return next(_files(folder, endings), None) is not None


def placed(root: Path, endings: Sequence[str], what: str) -> list[Placed]:
    """All files with these endings, in the order of their paths."""
    paths = sorted(_files(root, endings))
    if not paths:
        raise GlocalError(
            f"{shown(str(root))} has no {what} in it ({', '.join(endings)}): check the path."
        )
    folders = [path.relative_to(root).parts[:-1] for path in paths]
    where = next((p for p in (0, 1) if all(_is_part(names, p) for names in folders)), None)
    found = []
    for path, names in zip(paths, folders, strict=True):
        part = None if where is None else WORDS[PARTS[names[where].lower()]]
        rest = [name for p, name in enumerate(names) if p != where]
        if len(rest) not in (1, 2):
            raise GlocalError(
                f"{named(path)} is {len(names)} folders below {shown(str(root))}: put {what} "
                "into class/file or client/class/file, with train, val and test around them if "
                "they are split."
            )
        found.append(Placed(path, rest[-1], rest[0] if len(rest) == 2 else None, part))
    depths = {each.client is None for each in found}
    if len(depths) > 1:
        odd = next(each.path for each in found if each.client is None)
        raise GlocalError(
            f"{named(odd)} is in a class/file folder and others are in client/class/file: "
            "arrange all of them alike."
        )
    return found


def _is_part(names: Sequence[str], place: int) -> bool:
    return len(names) > place + 1 and names[place].lower() in PARTS


def _files(folder: Path, endings: Sequence[str]) -> Iterator[Path]:
    for where, below, names in os.walk(folder):
        below[:] = sorted(name for name in below if name[0] not in "._")
        for name in names:
            if name[0] not in "._" and name.lower().endswith(tuple(endings)):
                yield Path(where) / name
