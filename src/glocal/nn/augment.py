"""Keyed augmentation: the same key gives the same crops and flips in every engine.

Each function takes a batch of inputs ``[B, C, H, W]`` and a key. Every example has its own position
in the key's sequence, so padding a batch does not change the examples before it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from glocal.core import rng
from glocal.core.errors import GlocalError
from glocal.core.validation import integer
from glocal.nn.task import Augment

WIDEST = 256
"""The largest padding of a crop; more would leave little of most images."""


def flip() -> Augment:
    """Mirror each image left to right with probability one half."""

    def apply(x: Tensor, key: Tensor) -> Tensor:
        _check_images("flip", x)
        mirrored = rng.uniform(key, (x.shape[0],)) < 0.5
        return torch.where(mirrored.view(-1, 1, 1, 1), x.flip(-1), x)

    return apply


def crop(pad: int = 4) -> Augment:
    """Pad each image with zeros and crop a window of the old size at a random position."""
    integer(pad, "crop's pad", 0, WIDEST)

    def apply(x: Tensor, key: Tensor) -> Tensor:
        _check_images("crop", x)
        b, c, h, w = x.shape
        padded = functional.pad(x, (pad, pad, pad, pad))
        top = rng.randint(rng.fold(key, 0), 2 * pad + 1, (b,)).view(b, 1, 1, 1)
        left = rng.randint(rng.fold(key, 1), 2 * pad + 1, (b,)).view(b, 1, 1, 1)
        rows = (top + torch.arange(h, device=x.device).view(1, 1, h, 1)).expand(
            b, c, h, w + 2 * pad
        )
        columns = (left + torch.arange(w, device=x.device)).expand(b, c, h, w)
        return padded.gather(2, rows).gather(3, columns)

    return apply


def rotate() -> Augment:
    """Rotate each (square) image by a random multiple of 90 degrees."""

    def apply(x: Tensor, key: Tensor) -> Tensor:
        _check_images("rotate", x)
        if x.shape[-1] != x.shape[-2]:
            shape = list(x.shape[1:])
            raise GlocalError(
                f"rotate needs square images, not {shape}: pad them, or leave it out."
            )
        return turned(x, rng.randint(key, 4, (x.shape[0],)))

    return apply


def turned(x: Tensor, turns: Tensor) -> Tensor:
    """Each (square) image turned by so many times 90 degrees, from 0 to 3."""
    turns = turns.view(-1, 1, 1, 1)
    for k in (1, 2, 3):
        x = torch.where(turns == k, torch.rot90(x, k, (-2, -1)), x)
    return x


def _check_images(name: str, x: Tensor) -> None:
    if x.dim() != 4:
        raise GlocalError(
            f"{name} needs images [channels, height, width], not inputs of shape "
            f"{list(x.shape[1:])}: leave it out."
        )


def chain(*steps: Augment) -> Augment:
    """Apply augmentations one after the other, each with a key of its own."""

    def apply(x: Tensor, key: Tensor) -> Tensor:
        for i, each in enumerate(steps):
            x = each(x, rng.fold(key, i))
        return x

    return apply


AUGMENTATIONS: dict[str, Callable[..., Augment]] = {"crop": crop, "flip": flip, "rotate": rotate}
