"""All clients' states as one safetensors file, some clients at a time: never all in memory.

The bytes are those that safetensors itself would write.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.files import replacing
from glocal.core.types import Tree
from glocal.training.checkpoint_files import DTYPES, header, raw
from glocal.training.client_state.disk import row_bytes

CHUNK_BYTES = 1 << 28

_ORDER = ("BOOL", "U8", "I8", "I16", "F16", "BF16", "I32", "F32", "F64", "I64")
"""The format's own order of types."""


def write(path: Path, ids: Tensor, like: Tree, states: Callable[[Tensor], Tree]) -> None:
    """Write ``ids`` and their states, whole or not at all; raises ``OSError`` where it cannot.

    ``like`` is what a state looks like, with any first dimension; ``states`` gives those of some
    clients, stacked.
    """
    leaves = {"ids": ids, **dict(tree.flatten(like))}
    # As safetensors does: the widest types first, then by name.
    names = sorted(leaves, key=lambda n: (-_ORDER.index(DTYPES[leaves[n].dtype]), n))
    shapes = {n: (leaves[n].dtype, (len(ids), *leaves[n].shape[1:])) for n in names}
    head, offsets = header(shapes, {})
    with replacing(path) as file:
        file.write(head)
        file.seek(offsets["ids"])
        file.write(raw(ids))
        done = 0
        for some in torch.split(ids, max(1, CHUNK_BYTES // max(1, row_bytes(like)))):
            for name, leaf in tree.flatten(states(some)):
                file.seek(offsets[name] + done * (leaf.nbytes // len(some)))
                file.write(raw(leaf))
            done += len(some)
