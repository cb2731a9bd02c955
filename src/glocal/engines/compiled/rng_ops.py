"""Random draws as operations that a compiler leaves alone.

:mod:`glocal.core.rng` counts modulo 2^64, as torch does. In C++ an overflow of signed numbers is
undefined, so a compiler may make anything of it, and does; so where steps are compiled for a CPU
the draws stay calls of torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

from glocal.core import rng

_fold, _bits = rng.fold, rng.bits


@contextmanager
def left_alone() -> Iterator[None]:
    """Within it, ``rng.fold`` and ``rng.bits`` are operations of their own."""
    fold, bits = _operations()
    rng.fold, rng.bits = fold, bits
    try:
        yield
    finally:
        rng.fold, rng.bits = _fold, _bits


@cache
def _operations() -> tuple[Any, Any]:
    """Made at first use: importing what makes them takes time."""

    @torch.library.custom_op("glocal::fold", mutates_args=())
    def fold(key: Tensor, data: Tensor) -> Tensor:
        return _fold(key, data)

    @torch.library.custom_op("glocal::bits", mutates_args=())
    def bits(key: Tensor, n: int) -> Tensor:
        return _bits(key, n)

    @fold.register_fake
    def _(key: Tensor, data: Tensor) -> Tensor:
        return (key + data).clone()

    @bits.register_fake
    def _(key: Tensor, n: int) -> Tensor:
        return key.new_empty((*key.shape, n))

    @fold.register_vmap
    def _(info: Any, in_dims: Any, key: Tensor, data: Tensor) -> tuple[Tensor, int]:
        inner = max(x.dim() - (d is not None) for x, d in zip((key, data), in_dims, strict=True))

        def first(x: Tensor, dim: int | None) -> Tensor:
            """The mapped dimension first, then as many as the longer of the two has."""
            x = x.unsqueeze(0) if dim is None else x.movedim(dim, 0)
            return x.reshape(x.shape[0], *(1,) * (inner - x.dim() + 1), *x.shape[1:])

        return fold(first(key, in_dims[0]), first(data, in_dims[1])), 0

    @bits.register_vmap
    def _(info: Any, in_dims: Any, key: Tensor, n: int) -> tuple[Tensor, int]:
        return bits(key.movedim(in_dims[0], 0), n), 0

    def folded(key: Tensor, data: int | Tensor) -> Tensor:
        if isinstance(data, int):
            data = torch.full((), data, dtype=torch.int64, device=key.device)
        answer: Tensor = fold(key, data)
        return answer

    return folded, bits
