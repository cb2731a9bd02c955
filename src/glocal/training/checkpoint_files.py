"""Trees of tensors in numbered files that cannot be half-written or changed without notice.

A file is in the safetensors format, so that nothing in it is ever executed and anybody can read it;
its metadata says how the tensors make up trees. Its name is its number and the sha256 of what is in
it (as ``sha256sum`` prints it). It is written beside, flushed to disk and renamed; of a series the
newest few are kept, and a damaged one is passed over for the one before it. Only its owner can read
it: a checkpoint of private training holds the key of its noise.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from glocal.core import tree_bytes
from glocal.core.errors import NoRoomError
from glocal.core.files import flush_folder, private
from glocal.core.types import Tree

_FILE = re.compile(r"(\d{8})-([0-9a-f]{64})\.safetensors")


@dataclass(frozen=True)
class Checkpoint:
    """What a file of a series holds."""

    number: int
    facts: dict[str, Any]
    trees: Tree


@dataclass(frozen=True)
class CheckpointFiles:
    """The numbered files in a folder."""

    folder: Path
    keep: int = 2
    note: Callable[[str], None] = lambda text: None
    """Told in a sentence what is found damaged."""

    def write(
        self, number: int, facts: Mapping[str, Any], trees: Tree, spared: Collection[int] = ()
    ) -> None:
        """Add a file, then remove all but the newest few, and those of ``spared`` numbers."""
        beside = self.folder / ".part"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            beside.unlink(missing_ok=True)  # one that is left over may be open to others
            with open(beside, "xb", opener=private) as file:
                digest = hashlib.sha256()
                for part in tree_bytes.parts(facts, trees):
                    digest.update(part)
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.folder / f"{number:08d}-{digest.hexdigest()}.safetensors")
            flush_folder(self.folder)
            for old in self._files()[self.keep :]:
                if int(old.name[:8]) not in spared:
                    old.unlink(missing_ok=True)
        except OSError as error:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
            raise NoRoomError(
                f"a checkpoint cannot be written to {self.folder} ({error.strerror}): make room; "
                "what was written before is still good."
            ) from error

    def newest(self) -> Checkpoint | None:
        """The newest file that is as it was written."""
        files = self._files()
        for path, before in zip_longest(files, files[1:]):
            try:
                return _read(path)
            except _DamagedError as error:
                instead = f"{before.name[:8]} is used" if before else "it begins anew"
                self.note(f"checkpoint {path} is damaged ({error}): {instead} instead.")
                with suppress(OSError):  # set aside, so that it does not count as one of the newest
                    path.replace(path.with_suffix(".damaged"))
        return None

    def numbered(self, number: int) -> Checkpoint | None:
        """The file of this number, if there is one that is as it was written."""
        files = [path for path in self._files() if int(path.name[:8]) == number]
        for path in sorted(files, key=lambda path: path.stat().st_mtime_ns, reverse=True):
            with suppress(_DamagedError):
                return _read(path)
        return None

    def newest_name(self) -> str | None:
        """What the newest file is called, which no other content is."""
        files = self._files()
        return files[0].name if files else None

    def keep_newest(self) -> None:
        """Remove all files but the newest."""
        for old in [*self._files()[1:], *self.folder.glob("*.damaged")]:
            old.unlink(missing_ok=True)

    def oldest(self) -> int | None:
        """The number of the oldest file, if there is one."""
        files = self._files()
        return int(files[-1].name[:8]) if files else None

    def _files(self) -> list[Path]:
        """The newest first."""
        if not self.folder.is_dir():
            return []
        return sorted((p for p in self.folder.iterdir() if _FILE.fullmatch(p.name)), reverse=True)


class _DamagedError(Exception):
    """Not what was written."""


def _read(path: Path) -> Checkpoint:
    name = _FILE.fullmatch(path.name)
    assert name is not None
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while part := file.read(1 << 22):
                digest.update(part)
    except OSError as error:
        raise _DamagedError(error.strerror) from error
    if digest.hexdigest() != name[2]:
        raise _DamagedError("its checksum is wrong")
    from safetensors import safe_open

    try:
        with safe_open(path, framework="pt") as content:
            about = content.metadata() or {}
            # Cloned: what is read may be a view of the file, which may soon be gone.
            tensor_names = list(content.keys())
            tensors = {name: content.get_tensor(name).clone() for name in tensor_names}
        return Checkpoint(int(name[1]), *tree_bytes.content(about, tensors))
    except Exception as error:  # a foreign file, whatever it holds; safetensors has its own kinds
        raise _DamagedError(f"it is no checkpoint: {type(error).__name__}") from error
