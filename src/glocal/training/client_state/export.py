"""All clients' states as one safetensors file, some clients at a time: never all in memory.

The bytes are those that safetensors itself would write.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.files import flush_folder
from glocal.core.types import Tree
from glocal.training.checkpoint_files import DTYPES

CHUNK_BYTES = 1 << 28


def write(path: Path, ids: Tensor, like: Tree, states: Callable[[Tensor], Tree]) -> None:
    """Write ``ids`` and their states, whole or not at all; raises ``OSError`` where it cannot.

    Args:
        path: The file.
        ids: Whose.
        like: What a state looks like: a tree with any first dimension.
        states: The states of some, stacked.
    """
    rows = {name: leaf[:0] for name, leaf in tree.flatten(like)}
    named = {"ids": ids[:0], **rows}
    header, offsets, end = {}, {}, 0
    # As safetensors does: the widest types first, then by name.
    for name in sorted(named, key=lambda n: (-_rank(named[n]), n)):
        offsets[name] = end
        size = named[name].shape[1:].numel() * named[name].element_size()
        end += len(ids) * size
        header[name] = {
            "dtype": DTYPES[named[name].dtype],
            "shape": [len(ids), *named[name].shape[1:]],
            "data_offsets": [offsets[name], end],
        }
    head = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    head += b" " * (-len(head) % 8)
    one = sum(leaf.shape[1:].numel() * leaf.element_size() for leaf in rows.values())
    beside = path.with_name(f".{path.name}.part")
    try:
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        try:
            begin = _put(file, struct.pack("<Q", len(head)) + head, 0)
            _put(file, _bytes(ids), begin + offsets["ids"])
            done = 0
            for some in torch.split(ids, max(1, CHUNK_BYTES // max(1, one))):
                for name, leaf in tree.flatten(states(some)):
                    size = leaf.nbytes // len(some)
                    _put(file, _bytes(leaf), begin + offsets[name] + done * size)
                done += len(some)
            os.fsync(file)
        finally:
            os.close(file)
        beside.replace(path)
        flush_folder(path.parent)
    except OSError:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


_ORDER = ("BOOL", "U8", "I8", "I16", "F16", "BF16", "I32", "F32", "F64", "I64")
"""The format's own order of types."""


def _rank(leaf: Tensor) -> int:
    return _ORDER.index(DTYPES[leaf.dtype])


def _bytes(leaf: Tensor) -> memoryview:
    flat = leaf.detach().cpu().contiguous().reshape(-1)
    if not len(flat):
        return memoryview(b"")
    content: memoryview = flat.view(torch.uint8).numpy().data
    return content


def _put(file: int, content: bytes | memoryview, offset: int) -> int:
    """Write all of it; returns where it ends."""
    rest = memoryview(content)
    while len(rest):
        done = os.pwrite(file, rest, offset)
        rest, offset = rest[done:], offset + done
    return offset
