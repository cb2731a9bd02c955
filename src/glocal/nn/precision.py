"""In which arithmetic models train, by name; they are always evaluated in single precision.

By itself torch computes convolutions on a GPU in TF32 (numbers of 32 bits of which a product reads
19) and products of matrices in single precision. Here a name means one thing for both.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

PRECISIONS = {"single": None, "tf32": None, "bf16": torch.bfloat16}
"""The type in which a training pass computes; weights, gradients and losses stay in float32."""


@contextmanager
def arithmetic(precision: str) -> Iterator[None]:
    """While it lasts, a GPU reads float32 numbers of products and convolutions as it says.

    The settings are the process's. Threads that train side by side have the same precision, and
    whoever starts them has entered it before they do: none of them changes it for another.
    """
    tf32 = precision == "tf32"
    holders: tuple[Any, Any] = (torch.backends.cudnn, torch.backends.cuda.matmul)
    before = [holder.allow_tf32 for holder in holders]
    if before == [tf32, tf32]:
        yield
        return
    for holder in holders:
        holder.allow_tf32 = tf32
    try:
        yield
    finally:
        for holder, value in zip(holders, before, strict=True):
            holder.allow_tf32 = value
