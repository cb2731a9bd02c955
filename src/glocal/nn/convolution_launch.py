"""Convolutions' programs on a GPU, and which tiles they work in: by shape and precision alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from glocal.nn import convolution_kernels as kernels

WAVE = 132
"""Multiprocessors of a card, about: sums are cut into parts until each has several programs."""

DOTS = {"single": "tf32x3", "tf32": "tf32", "bf16": "ieee"}
"""How tensor cores multiply numbers of 32 bits. For ``single`` each is split into two of TF32, and
the three products that matter are added up: no farther from exact than products in single precision
(docs/measurements/speed.md). Of half-precision numbers there is one way."""


class Tile(NamedTuple):
    """How large a program's part is, and with how many warps it computes."""

    places: int
    filters: int
    depth: int
    """Channels, or channels and places in the kernel."""
    warps: int
    stages: int = 3


OUTPUT_TILE_OF_FEW = Tile(256, 8, 1, 2)

LARGE = 4_096
"""Places in an output image from which more of them are a tile: there is a sum for each."""

KERNELS_TILES_OF_FEW = (Tile(32, 8, 16, 1, 1), Tile(128, 8, 16, 4, 1))
"""For other and for large images. Here stages are examples that are read at once."""

GRID = 65_535
"""Programs that a launch has at most in the dimension in which clients are."""


def output_of_many(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    dilation: Sequence[int],
    precision: str,
    tile: Tile | None = None,
) -> Tensor:
    """X [clients, examples, …, channels], weight [clients, filters, …, channels] → y likewise."""
    clients, examples, *image, channels = x.shape
    filters, *kernel = weight.shape[1:-1]
    out = out_of(image, kernel, stride, dilation)
    if clients > GRID:
        return _in_pieces(
            lambda x, w, b: output_of_many(x, w, b, stride, dilation, precision, tile),
            (x, weight, bias),
            GRID,
        )
    y = x.new_empty((clients, examples, *out, filters))
    places = examples * prod(out)
    if tile is None:
        tile = output_tile_of_many(channels, filters, precision, x.dtype)
        tile = fitted(tile, (tile.places + tile.filters) * tile.depth * x.itemsize, x.device)
    grid = (triton.cdiv(places, tile.places), triton.cdiv(filters, tile.filters), clients)
    kernels.output_of_many[grid](
        *(x.contiguous(), weight.contiguous(), x if bias is None else bias.contiguous(), y),
        *(examples, *image, *out, channels, filters, *kernel, *stride, *dilation),
        *(bias is not None, DOTS.get(precision, precision)),
        *(tile.places, tile.filters, tile.depth),
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    return y


def kernels_of_many(
    x: Tensor,
    dy: Tensor,
    stride: Sequence[int],
    dilation: Sequence[int],
    precision: str,
    kernel: Sequence[int],
    tile: Tile | None = None,
    parts: int | None = None,
) -> Tensor:
    """Dw [clients, filters, …, channels]."""
    clients, examples, *image, channels = x.shape
    *out, filters = dy.shape[2:]
    places = examples * prod(out)
    depth = prod(kernel) * channels
    if tile is None:
        tile = kernels_tile_of_many(channels, filters, depth, x.dtype)
        tile = fitted(tile, (tile.depth + tile.filters) * tile.places * x.itemsize, x.device)
    blocks = triton.cdiv(depth, tile.depth)
    rows = triton.cdiv(filters, tile.filters)
    parts = parts or parts_of(clients * blocks * rows, places)
    of_part = triton.cdiv(triton.cdiv(places, parts), tile.places) * tile.places
    if clients * parts > GRID:
        return _in_pieces(
            lambda x, dy: kernels_of_many(x, dy, stride, dilation, precision, kernel, tile, parts),
            (x, dy),
            GRID // parts,
        )
    parts = triton.cdiv(places, of_part)
    dw = x.new_empty((clients, filters, *kernel, channels))
    made = dw if parts == 1 else dw.new_empty((parts, *dw.shape), dtype=torch.float32)
    kernels.kernels_of_many[(blocks, rows, clients * parts)](
        *(x.contiguous(), dy.contiguous(), made),
        *(examples, *image, *out, clients, parts, of_part),
        *(channels, filters, *kernel, *stride, *dilation, DOTS.get(precision, precision)),
        *(tile.filters, tile.depth, tile.places),
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    return dw if parts == 1 else made.sum(0).to(dw.dtype)


def output_of_few(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    filters: int,
    stride: Sequence[int],
    dilation: Sequence[int],
    tile: Tile = OUTPUT_TILE_OF_FEW,
) -> Tensor:
    """X [clients, examples, channels, …], weight [clients, channels, …, room] → y [… filters …]."""
    clients, examples, channels, *image = x.shape
    *kernel, room = weight.shape[2:]
    out = out_of(image, kernel, stride, dilation)
    if clients > GRID:
        return _in_pieces(
            lambda x, w, b: output_of_few(x, w, b, filters, stride, dilation, tile),
            (x, weight, bias),
            GRID,
        )
    y = x.new_empty((clients, examples, filters, *out))
    places = examples * prod(out)
    grid = (triton.cdiv(places, tile.places), triton.cdiv(filters, tile.filters), clients)
    kernels.output_of_few[grid](
        *(x.contiguous(), weight.contiguous(), x if bias is None else bias.contiguous(), y),
        *(examples, *image, *out, channels, filters, *kernel, *stride, *dilation),
        *(bias is not None, room, tile.filters, tile.places),
        num_warps=tile.warps,
    )
    return y


def kernels_of_few(
    x: Tensor,
    dy: Tensor,
    stride: Sequence[int],
    dilation: Sequence[int],
    kernel: Sequence[int],
    tile: Tile | None = None,
    parts: int | None = None,
) -> Tensor:
    """Dw [clients, filters, channels, …]."""
    clients, examples, channels, *image = x.shape
    filters, *out = dy.shape[2:]
    depth = channels * prod(kernel)
    tile = tile or KERNELS_TILES_OF_FEW[prod(out) > LARGE]
    blocks, rows = triton.cdiv(depth, tile.depth), triton.cdiv(filters, tile.filters)
    of_image = triton.cdiv(prod(out), tile.places)
    parts = parts or examples_parts(clients * blocks * rows * of_image, examples)
    of_part = triton.cdiv(examples, parts)
    if clients * of_image * parts > GRID:
        return _in_pieces(
            lambda x, dy: kernels_of_few(x, dy, stride, dilation, kernel, tile, parts),
            (x, dy),
            max(1, GRID // (of_image * parts)),
        )
    parts = of_image * triton.cdiv(examples, of_part)
    dw = x.new_empty((clients, filters, channels, *kernel))
    made = dw if parts == 1 else dw.new_empty((parts, *dw.shape), dtype=torch.float32)
    kernels.kernels_of_few[(blocks, rows, clients * parts)](
        *(x.contiguous(), dy.contiguous(), made),
        *(examples, *image, *out, clients, parts, of_part, channels, filters),
        *(*kernel, *stride, *dilation, tile.filters, tile.depth, tile.places, tile.stages),
        num_warps=tile.warps,
    )
    return dw if parts == 1 else made.sum(0).to(dw.dtype)


def _in_pieces(
    function: Callable[..., Tensor], stacked: Sequence[Tensor | None], most: int
) -> Tensor:
    """What a function makes of stacked clients, of so many of them at a time."""
    first = stacked[0]
    assert first is not None
    pieces = range(0, len(first), most)
    return torch.cat(
        [function(*(t if t is None else t[k : k + most] for t in stacked)) for k in pieces]
    )


def out_of(
    image: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> list[int]:
    """Rows and columns of the output."""
    sizes = zip(image, kernel, stride, dilation, strict=True)
    return [(size - apart * (k - 1) - 1) // by + 1 for size, k, by, apart in sizes]


def parts_of(blocks: int, places: int) -> int:
    """Into how many parts a sum over so many places is cut, that so many programs make."""
    return max(1, min(12 * WAVE // blocks, -(-places // 256)))


def examples_parts(blocks: int, examples: int) -> int:
    """Into how many parts the examples of a mini-batch are divided."""
    return max(1, min(8 * WAVE // blocks, examples // 4))


def output_tile_of_many(channels: int, filters: int, precision: str, dtype: torch.dtype) -> Tile:
    """The tile of an output."""
    depth = _power(channels, 16, 32)
    if filters <= 32:
        wide = precision != "single"
        return Tile(256 if wide else 128, 32, depth, 8 if wide else 4)
    if filters >= 128 and precision != "single":
        return Tile(128, 128, depth, 8)
    if dtype == torch.bfloat16 and channels % 64 == 0:
        return Tile(128, 64, 64, 4)
    return Tile(128, 64, depth, 4)


def kernels_tile_of_many(channels: int, filters: int, depth: int, dtype: torch.dtype) -> Tile:
    """The tile of a gradient of kernels; ``depth``: channels times places in a kernel."""
    if dtype != torch.bfloat16:
        return Tile(32, _power(filters, 16, 32), _power(depth, 16, 128), 4)
    if min(channels, filters) >= 128:
        return Tile(64, 128, 128, 8, 2)
    if filters <= 32:
        return Tile(64, _power(filters, 16, 32), 128, 4)
    return Tile(64, 64, 64, 4)


def fitted(tile: Tile, stage: int, device: torch.device, room: int | None = None) -> Tile:
    """The tile with as many stages, of so many bytes each, as a multiprocessor has room for."""
    if room is None and device.type == "cuda":
        card = torch.cuda.get_device_properties(device)
        room = getattr(card, "shared_memory_per_block_optin", None)
    return tile if room is None else tile._replace(stages=max(1, min(tile.stages, room // stage)))


def _power(n: int, least: int, most: int) -> int:
    return min(most, max(least, 1 << (n - 1).bit_length()))
