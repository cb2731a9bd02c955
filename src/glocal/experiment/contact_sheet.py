"""A contact sheet: synthetic images by class, one row a class, one block of columns a snapshot.

Written as PNG by hand (deflate and checksums are in Python), so that no picture library is needed.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from glocal.core.errors import GlocalError
from glocal.core.files import write

GAP = 2
"""White pixels between pictures; between blocks four times as many."""


TILE = 24
"""Pixels that a picture is high, about: smaller ones are enlarged."""


def enlarged(x: Tensor) -> Tensor:
    """Small pictures with each pixel drawn several times, so that a person can see them."""
    times = max(1, TILE // x.shape[-2])
    return x.repeat_interleave(times, -2).repeat_interleave(times, -1)


def block(x: Tensor, y: Tensor, classes: int, columns: int) -> Tensor:
    """The first ``columns`` examples of every class, as grey or coloured pixels (uint8)."""
    if x.dim() != 4 or x.shape[1] not in (1, 3):
        raise GlocalError(
            f"examples of shape {tuple(x.shape[1:])} are no pictures: a contact sheet shows images "
            "of one or three channels."
        )
    _, channels, height, width = x.shape
    white = torch.full((classes, columns, channels, height + GAP, width + GAP), 255)
    tiles = white.to(torch.uint8)
    shades = (x.detach().cpu().clamp(0, 1) * 255).round().to(torch.uint8)
    for c in range(classes):
        pictures = shades[(y == c).cpu()][:columns]
        tiles[c, : len(pictures), :, :height, :width] = pictures
    rows = tiles.permute(2, 0, 3, 1, 4).reshape(channels, classes * (height + GAP), -1)
    paper = rows[:, :-GAP, :-GAP]
    return paper[0] if channels == 1 else paper.permute(1, 2, 0)


def side_by_side(blocks: Sequence[Tensor]) -> Tensor:
    """Blocks of one height with white between them."""
    white = torch.full((blocks[0].shape[0], 4 * GAP, *blocks[0].shape[2:]), 255, dtype=torch.uint8)
    parts = [part for b in blocks for part in (white, b)][1:]
    return torch.cat(parts, 1)


def write_png(file: Path, pixels: Tensor) -> None:
    """Grey [h, w] or coloured [h, w, 3] pixels (uint8) as a PNG file."""
    array = np.ascontiguousarray(pixels.cpu().numpy().astype(np.uint8))
    height, width = array.shape[:2]
    colour = 0 if array.ndim == 2 else 2
    lines = array.reshape(height, -1)
    raw = np.concatenate([np.zeros((height, 1), np.uint8), lines], 1).tobytes()  # no filter

    def chunk(kind: bytes, body: bytes) -> bytes:
        check = zlib.crc32(kind + body)
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", check)

    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    content = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b"")
    write(file, b"\x89PNG\r\n\x1a\n" + content)
