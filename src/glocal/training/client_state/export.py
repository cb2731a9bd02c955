"""All clients' states as one safetensors file, some clients at a time: never all in memory.

The bytes are those that safetensors itself would write.
"""

from __future__ import annotations

from pathlib import Path

import torch

from glocal.core import tree
from glocal.core.files import no_room, replacing
from glocal.core.tree_bytes import DTYPES, header, raw
from glocal.training.client_state.store import ClientStore

CHUNK_BYTES = 1 << 28

_ORDER = ("BOOL", "U8", "I8", "I16", "F16", "BF16", "I32", "F32", "F64", "I64")
"""The format's own order of types."""


def write(path: Path, store: ClientStore) -> None:
    """Write who has a state, and those states, which are on disk: whole or not at all."""
    rows, ids = store.settled_file(), store.seen.nonzero().flatten()
    assert rows is not None
    leaves = {"ids": ids, **dict(tree.flatten(rows.like))}
    # As safetensors does: the widest types first, then by name.
    names = sorted(leaves, key=lambda n: (-_ORDER.index(DTYPES[leaves[n].dtype]), n))
    shapes = {n: (leaves[n].dtype, (len(ids), *leaves[n].shape[1:])) for n in names}
    head, offsets = header(shapes, {})
    try:
        with replacing(path) as file:
            file.write(head)
            file.seek(offsets["ids"])
            file.write(raw(ids))
            done = 0
            for some in torch.split(ids, max(1, CHUNK_BYTES // max(1, rows.size))):
                for name, leaf in tree.flatten(store.rows_of(some.to(store.device))):
                    file.seek(offsets[name] + done * (leaf.nbytes // len(some)))
                    file.write(raw(leaf))
                done += len(some)
    except OSError as error:
        raise no_room(path, error) from error
