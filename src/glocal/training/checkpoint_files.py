"""Trees of tensors in numbered files that cannot be half-written or changed without notice.

A file is in the safetensors format, so that nothing in it is ever executed and anybody can read it;
its metadata says how the tensors make up trees. Its name is its number and the sha256 of what is in
it (as ``sha256sum`` prints it). It is written beside, flushed to disk and renamed; of a series the
newest few are kept, and a damaged one is passed over for the one before it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from glocal.core.errors import NoRoomError
from glocal.core.files import flush_folder
from glocal.core.types import Tree

_FILE = re.compile(r"(\d{8})-([0-9a-f]{64})\.safetensors")
DTYPES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
}


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

    def write(self, number: int, facts: Mapping[str, Any], trees: Tree) -> None:
        """Add a file, then remove all but the newest few."""
        beside = self.folder / ".part"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with beside.open("wb") as file:
                checksum = _write(file, facts, trees)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.folder / f"{number:08d}-{checksum}.safetensors")
            flush_folder(self.folder)
            for old in self._files()[self.keep :]:
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


def _write(file: BinaryIO, facts: Mapping[str, Any], trees: Tree) -> str:
    """The safetensors format, tensor by tensor, so that nothing large is copied; the checksum."""
    named: dict[str, Tensor] = {}
    shape = _named(trees, "", named)
    about = {"__metadata__": {"facts": json.dumps(facts), "trees": json.dumps(shape)}}
    head, _ = header({name: (leaf.dtype, leaf.shape) for name, leaf in named.items()}, about)
    digest = hashlib.sha256()
    parts: Iterable[bytes | memoryview] = chain((head,), map(raw, named.values()))
    for part in parts:
        digest.update(part)
        file.write(part)
    return digest.hexdigest()


def header(
    shapes: Mapping[str, tuple[torch.dtype, tuple[int, ...]]], about: Mapping[str, Any]
) -> tuple[bytes, dict[str, int]]:
    """How a file in the safetensors format begins, and where in it each tensor does."""
    tensors, offsets, end = {}, {}, 0
    for name, (dtype, shape) in shapes.items():
        offsets[name], end = end, end + math.prod(shape) * dtype.itemsize
        tensors[name] = {
            "dtype": DTYPES[dtype],
            "shape": list(shape),
            "data_offsets": [offsets[name], end],
        }
    head = json.dumps({**about, **tensors}, separators=(",", ":"), ensure_ascii=False).encode()
    head += b" " * (-len(head) % 8)
    head = struct.pack("<Q", len(head)) + head
    return head, {name: len(head) + offset for name, offset in offsets.items()}


def raw(leaf: Tensor) -> memoryview:
    """A tensor's bytes."""
    flat = leaf.detach().cpu().contiguous().reshape(-1)
    content: memoryview = flat.view(torch.uint8).numpy().data if len(flat) else memoryview(b"")
    return content


def _named(tree: Tree, prefix: str, named: dict[str, Tensor]) -> Any:
    """The tree with names for its leaves: keeps empty branches and the order, which sums follow."""
    shape: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            shape[key] = _named(value, f"{prefix}{key}/", named)
            continue
        name = prefix + key
        while name in named or name == "__metadata__":  # a key may have a slash in it
            name += "~"
        named[name], shape[key] = value, name
    return shape


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
            facts, shape = json.loads(about["facts"]), json.loads(about["trees"])
            # Cloned: what is read may be a view of the file, which may soon be gone.
            tensor_names = list(content.keys())
            tensors = {name: content.get_tensor(name).clone() for name in tensor_names}
        if not isinstance(facts, dict):
            raise TypeError("facts")
        return Checkpoint(int(name[1]), facts, _grown(shape, tensors))
    except Exception as error:  # a foreign file, whatever it holds; safetensors has its own kinds
        raise _DamagedError(f"it is no checkpoint: {type(error).__name__}") from error


def _grown(shape: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Tree:
    return {
        key: _grown(value, tensors) if isinstance(value, dict) else tensors[value]
        for key, value in shape.items()
    }
