"""Trees of tensors as bytes in the safetensors format, which holds no code.

The metadata has two texts: ``facts`` is JSON, and ``trees`` says how the tensors make up trees, so
that empty branches and the order, which sums follow, are kept.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from glocal.core.types import Tree

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


def parts(facts: Mapping[str, Any], trees: Tree) -> Iterator[bytes | memoryview]:
    """The bytes, tensor by tensor, so that nothing large is copied."""
    named: dict[str, Tensor] = {}
    shape = _named(trees, "", named)
    about = {"__metadata__": {"facts": json.dumps(facts), "trees": json.dumps(shape)}}
    yield header({name: (leaf.dtype, leaf.shape) for name, leaf in named.items()}, about)[0]
    yield from map(raw, named.values())


def content(metadata: Mapping[str, str], tensors: Mapping[str, Tensor]) -> tuple[Any, Tree]:
    """The facts and the trees, from a file's metadata and its tensors by name."""
    facts, shape = json.loads(metadata["facts"]), json.loads(metadata["trees"])
    if not isinstance(facts, dict):
        raise TypeError("facts")
    return facts, _grown(shape, tensors)


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


def _grown(shape: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Tree:
    return {
        key: _grown(value, tensors) if isinstance(value, dict) else tensors[value]
        for key, value in shape.items()
    }
