"""Counter-based randomness: what is drawn depends on its key alone, never on what came before.

A key is an int64 tensor (or a stack of them). ``fold(key, i)`` makes the ``i``-th child of a key,
so the key of a step is ``fold(fold(fold(seed, round), client), step)``, and every engine on every
device draws the same batches and the same dropout masks. The generator is SplitMix64 (Steele, Lea,
Flood: *Fast splittable pseudorandom number generators*, OOPSLA 2014), which is a counter times an
odd constant, then a bit mixer. It is written in plain tensor operations, so it can be vmapped.

A draw of ``n`` numbers begins with the draw of fewer from the same key: padding changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._C import _len_torch_dispatch_stack
from torch._C._functorch import peek_interpreter_stack


def _signed(word: int) -> int:
    """A 64-bit constant as torch holds it."""
    return word - (1 << 64) if word >> 63 else word


_GAMMA = _signed(0x9E3779B97F4A7C15)
_M1 = _signed(0xBF58476D1CE4E5B9)
_M2 = _signed(0x94D049BB133111EB)
_ALL = (1 << 64) - 1
_WG, _W1, _W2 = (word & _ALL for word in (_GAMMA, _M1, _M2))
_UG, _U1, _U2 = (np.uint64(word) for word in (_WG, _W1, _W2))


def _shr(x: Tensor, k: int) -> Tensor:
    """Logical shift right: torch's ``>>`` on int64 copies the sign."""
    return (x >> k) & ((1 << (64 - k)) - 1)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shr(x, 30)) * _M1
    x = (x ^ _shr(x, 27)) * _M2
    return x ^ _shr(x, 31)


def _plain(x: Tensor) -> bool:
    """Whether numpy may have it, which is faster for the short tensors that keys are."""
    here = type(x) is Tensor and x.dtype == torch.int64 and x.device.type == "cpu"
    return here and peek_interpreter_stack() is None  # not within vmap or grad


def _is_traced(key: Tensor) -> bool:
    """Whether a draw on a CPU is being traced: then it is an operator, which compilers leave alone.

    Draws count modulo 2^64, as torch does. In C++ an overflow of signed numbers is undefined, so
    that a compiler may make anything of it, and does.
    """
    return key.device.type == "cpu" and _len_torch_dispatch_stack() > 0


def _words(x: Tensor) -> Any:
    """The same words as numpy holds them: without a sign, so that they may overflow."""
    return np.atleast_1d(x.numpy()).view(np.uint64)


def _tensor(words: Any, shape: Sequence[int]) -> Tensor:
    return torch.from_numpy(words.view(np.int64)).reshape(tuple(shape))


def _mixed(x: Any) -> Any:
    """:func:`_mix` of numpy's words."""
    x = (x ^ (x >> np.uint64(30))) * _U1
    x = (x ^ (x >> np.uint64(27))) * _U2
    return x ^ (x >> np.uint64(31))


def _mixed_int(x: int) -> int:
    """:func:`_mix` of one word, without a sign."""
    x = (x ^ (x >> 30)) * _W1 & _ALL
    x = (x ^ (x >> 27)) * _W2 & _ALL
    return x ^ (x >> 31)


def key(seed: int, device: torch.device | str = "cpu") -> Tensor:
    """The root key of a seed."""
    return _mix(torch.tensor(_signed(seed % (1 << 64)), device=device) + _GAMMA)


def fold(key: Tensor, data: int | Tensor) -> Tensor:
    """A child of ``key`` for each entry of ``data``; different data, unrelated children."""
    if _is_traced(key):
        if isinstance(data, int):
            data = torch.full((), data, dtype=torch.int64)
        child: Tensor = torch.ops.glocal.fold(key, data)
        return child
    return _fold(key, data)


def bits(key: Tensor, n: int) -> Tensor:
    """``n`` words of 64 random bits, as int64, in a new last dimension of ``key``."""
    if _is_traced(key):
        words: Tensor = torch.ops.glocal.bits(key, n)
        return words
    return _bits(key, n)


def _fold(key: Tensor, data: int | Tensor) -> Tensor:
    if _plain(key) and (isinstance(data, int) or _plain(data)):
        if isinstance(data, int):
            if key.dim() == 0:
                word = _mixed_int((int(key) + (data + 1) * _WG) & _ALL)
                return torch.tensor(_signed(_mixed_int((word + _WG) & _ALL)))
            words = _words(key) + np.uint64((data + 1) * _WG & _ALL)
        else:
            words = _words(key) + (_words(data) + np.uint64(1)) * _UG
        shape = () if key.dim() == 0 == getattr(data, "ndim", 0) else words.shape
        return _tensor(_mixed(_mixed(words) + _UG), shape)
    step = (
        _signed((data + 1) * _GAMMA % (1 << 64)) if isinstance(data, int) else (data + 1) * _GAMMA
    )
    return _mix(_mix(key + step) + _GAMMA)


def _bits(key: Tensor, n: int) -> Tensor:
    if _plain(key):
        counters = np.arange(1, n + 1, dtype=np.uint64) * _UG
        return _tensor(_mixed(_words(key)[..., None] + counters), (*key.shape, n))
    counter = torch.arange(1, n + 1, device=key.device)
    return _mix(key.unsqueeze(-1) + counter * _GAMMA)


@torch.library.custom_op("glocal::fold", mutates_args=())
def _fold_operator(key: Tensor, data: Tensor) -> Tensor:
    return _fold(key, data)


@torch.library.custom_op("glocal::bits", mutates_args=())
def _bits_operator(key: Tensor, n: int) -> Tensor:
    return _bits(key, n)


@_fold_operator.register_fake
def _(key: Tensor, data: Tensor) -> Tensor:
    return (key + data).clone()


@_bits_operator.register_fake
def _(key: Tensor, n: int) -> Tensor:
    return key.new_empty((*key.shape, n))


@_fold_operator.register_vmap
def _(info: Any, in_dims: Any, key: Tensor, data: Tensor) -> tuple[Tensor, int]:
    inner = max(x.dim() - (d is not None) for x, d in zip((key, data), in_dims, strict=True))

    def mapped_first(x: Tensor, dim: int | None) -> Tensor:
        """The mapped dimension first, then as many as the longer of the two has."""
        x = x.unsqueeze(0) if dim is None else x.movedim(dim, 0)
        return x.reshape(x.shape[0], *(1,) * (inner - x.dim() + 1), *x.shape[1:])

    return fold(mapped_first(key, in_dims[0]), mapped_first(data, in_dims[1])), 0


@_bits_operator.register_vmap
def _(info: Any, in_dims: Any, key: Tensor, n: int) -> tuple[Tensor, int]:
    return bits(key.movedim(in_dims[0], 0), n), 0


def uniform(key: Tensor, shape: Sequence[int]) -> Tensor:
    """Floats in [0, 1) with 24 random bits, of the given shape behind the shape of ``key``."""
    words = _shr(bits(key, math.prod(shape)), 40)
    return (words.to(torch.float32) * 2.0**-24).reshape(*key.shape, *shape)


def normal(key: Tensor, shape: Sequence[int]) -> Tensor:
    """Standard normal floats (Box and Muller)."""
    u = uniform(fold(key, 0), shape)
    v = uniform(fold(key, 1), shape)
    return torch.sqrt(-2.0 * torch.log1p(-u)) * torch.cos(2.0 * math.pi * v)


def randint(key: Tensor, high: int, shape: Sequence[int]) -> Tensor:
    """Integers in [0, high)."""
    words = _shr(bits(key, math.prod(shape)), 1)
    return (words % high).reshape(*key.shape, *shape)


def permutation(key: Tensor, n: int, live: Tensor | None = None) -> Tensor:
    """A permutation of ``range(n)`` for each key; entries that are not ``live`` go to the end."""
    if _plain(key) and (live is None or live.device.type == "cpu"):
        drawn = _words(bits(key, n)) >> np.uint64(1)
        if live is not None:
            drawn = np.where(live.numpy(), drawn, np.uint64(_ALL >> 1))
        # Not the stable kind, which takes three times as long: no two words are the same.
        return torch.from_numpy(drawn.argsort(-1)).reshape(*key.shape, n)
    words = _shr(bits(key, n), 1)
    if live is not None:
        words = torch.where(live, words, torch.iinfo(torch.int64).max)
    return torch.argsort(words, dim=-1, stable=True)


def seed_of(key: Tensor) -> int:
    """A non-negative Python integer for generators that want one (a module's initialisation)."""
    return int(_shr(key, 1).item())
