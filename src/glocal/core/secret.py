"""Randomness that nobody can draw again who does not hold its key: for the noise of privacy.

What training draws is a function of the public seed (:mod:`glocal.core.rng`), by a generator that
is fast and can be inverted. Noise that protects somebody needs neither: here a key is 256 bits from
the operating system (four int64 words, or a stack of such), children and draws are SHAKE-256 (FIPS
202) of the key and what they are for, and from draws or children no key can be found.

Draws are made on the host. They can be vmapped, and are the same for every engine.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from typing import Any

import numpy as np
import torch
from torch import Tensor

WORDS = 4
"""Words of 64 bits in a key."""

_CHILD, _DRAW, _SEED, _NARROW = range(4)
"""What is hashed: for a key's child, its draws, of a seed, of a key of training. None of them says
anything of the others."""


def fresh() -> Tensor:
    """A key from the operating system's randomness."""
    return torch.frombuffer(bytearray(secrets.token_bytes(8 * WORDS)), dtype=torch.int64).clone()


def of_seed(seed: int) -> Tensor:
    """The key that a public seed stands for: it keeps nothing from whoever has the seed."""
    return _hashed(torch.zeros(WORDS, dtype=torch.int64), torch.tensor(seed), WORDS, _SEED)


def fold(key: Tensor, *path: int | Tensor) -> Tensor:
    """The child of a key, the child of that, and so on; a tensor makes a stack of them."""
    for part in path:
        data = torch.tensor(part) if isinstance(part, int) else part
        key = torch.ops.glocal.hashed(key, data, WORDS, _CHILD)
    return key


def bits(key: Tensor, n: int) -> Tensor:
    """``n`` words of 64 random bits in place of the key's own."""
    words: Tensor = torch.ops.glocal.hashed(key, torch.zeros_like(key[..., 0]), n, _DRAW)
    return words


def narrow(key: Tensor) -> Tensor:
    """A key of :mod:`glocal.core.rng`, for what is drawn unseen: who is sampled, mini-batches."""
    return bits(key, 1)[..., 0]


def of_key(key: Tensor) -> Tensor:
    """The key that one of :mod:`glocal.core.rng` stands for: as secret as that is, of 64 bits."""
    nothing = torch.zeros(WORDS, dtype=torch.int64, device=key.device)
    wide: Tensor = torch.ops.glocal.hashed(nothing, key, WORDS, _NARROW)
    return wide


def gaussian(key: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Standard normal numbers (Box and Muller) of 53 random bits: those of training have 24."""
    count = math.prod(shape)
    words = bits(key, 2 * count) >> 11  # 53 bits and a sign
    uniform = (words & ((1 << 53) - 1)).to(torch.float64) * 2.0**-53
    radius = torch.sqrt(-2.0 * torch.log1p(-uniform[..., :count]))
    return (radius * torch.cos(2.0 * math.pi * uniform[..., count:])).reshape(shape)


def _hashed(key: Tensor, data: Tensor, n: int, use: int) -> Tensor:
    shape = np.broadcast_shapes(key.shape[:-1], data.shape)
    keys, parts = key.expand(*shape, WORDS).reshape(-1, WORDS), data.expand(shape).reshape(-1)
    said = zip(keys.cpu().numpy().astype("<i8"), parts.cpu().numpy().astype("<i8"), strict=True)
    drawn = [hashlib.shake_256(bytes([use]) + k.tobytes() + d.tobytes()) for k, d in said]
    words = np.frombuffer(b"".join(each.digest(8 * n) for each in drawn), dtype="<i8")
    return torch.from_numpy(words.astype(np.int64)).reshape(*shape, n).to(key.device)


@torch.library.custom_op("glocal::hashed", mutates_args=())
def _hashed_operator(key: Tensor, data: Tensor, n: int, use: int) -> Tensor:
    return _hashed(key, data, n, use)


@_hashed_operator.register_fake
def _(key: Tensor, data: Tensor, n: int, use: int) -> Tensor:
    return key.new_empty((*np.broadcast_shapes(key.shape[:-1], data.shape), n))


@_hashed_operator.register_vmap
def _(info: Any, in_dims: Any, key: Tensor, data: Tensor, n: int, use: int) -> tuple[Tensor, int]:
    inner = max(key.dim() - 1 - (in_dims[0] is not None), data.dim() - (in_dims[1] is not None))

    def mapped_first(x: Tensor, dim: int | None, own: int) -> Tensor:
        """The mapped dimension first, then as many as the longer of the two has, then its own."""
        x = x.unsqueeze(0) if dim is None else x.movedim(dim, 0)
        return x.reshape(x.shape[0], *(1,) * (inner - x.dim() + 1 + own), *x.shape[1:])

    keys, parts = mapped_first(key, in_dims[0], 1), mapped_first(data, in_dims[1], 0)
    words: Tensor = torch.ops.glocal.hashed(keys, parts, n, use)
    return words, 0
