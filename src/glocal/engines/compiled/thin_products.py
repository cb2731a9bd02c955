"""Products of a mini-batch's few rows and each client's weights, on a GPU in single precision.

Memory decides how long they take, as all weights are read for ten rows or so; in single precision
the library that multiplies takes about twice that. The operator takes weights as they lie there.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

ROWS = 16
"""Rows up to which a product is thin: a tensor core multiplies so many at once."""

LARGE = 4_096
"""Numbers in a client's matrix from which it pays."""

CLIENTS = 65_535
"""Clients up to which one launch has a program for each."""

FILLED = 528
"""Programs that fill a card."""


class Tile(NamedTuple):
    """How many columns a program computes, and how many terms it reads at once."""

    columns: int
    terms: int
    warps: int
    stages: int


def is_thin(a: Tensor, b: Tensor) -> bool:
    """Whether the rule takes the operator for ``a @ b``, [clients, rows, terms] and [… columns]."""
    on_gpu = a.device.type == "cuda" and find_spec("triton") and not torch.version.hip
    large = b.shape[1] * b.shape[2] >= LARGE and min(b.shape[1:]) >= ROWS
    single = a.dtype == b.dtype == torch.float32 and not torch.backends.cuda.matmul.allow_tf32
    return bool(on_gpu) and single and large and a.shape[1] <= ROWS and len(a) <= CLIENTS


def product(a: Tensor, b: Tensor) -> Tensor:
    """``a @ b``, of weights as they are or transposed."""
    transposed = b.stride(1) == 1 and b.stride(2) == b.shape[1]
    y: Tensor = thin_product(a, b.transpose(1, 2) if transposed else b, transposed)
    return y


@torch.library.custom_op(
    "glocal::thin_product",
    mutates_args=(),
    schema="(Tensor a, Tensor b, bool transposed, Tensor? bias=None, bool rectified=False, "
    "Tensor? mask_of=None) -> Tensor",
)
def thin_product(
    a: Tensor,
    b: Tensor,
    transposed: bool,
    bias: Tensor | None = None,
    rectified: bool = False,
    mask_of: Tensor | None = None,
) -> Tensor:
    """``a @ b``, or ``a @ b.mT``, and what comes behind it, in this order.

    ``bias`` [clients or 1, 1, columns] is added; if ``rectified``, negative numbers become 0; and
    so do all where ``mask_of``, of the result's shape, is not above 0.
    """
    if a.device.type == "cuda":
        with torch.cuda.device(a.device):
            return launch(a, b, transposed, bias=bias, rectified=rectified, mask_of=mask_of)
    y = a @ (b.transpose(1, 2) if transposed else b)
    y = y if bias is None else y + bias
    y = y.relu() if rectified else y
    return y if mask_of is None else torch.where(mask_of <= 0, 0, y)


@thin_product.register_fake
def _(a: Tensor, b: Tensor, transposed: bool, *_: object) -> Tensor:
    return a.new_empty((*a.shape[:2], b.shape[1 if transposed else 2]))


OPERATOR = torch.ops.glocal.thin_product.default
"""As it stands in a graph."""


def launch(
    a: Tensor,
    b: Tensor,
    transposed: bool,
    tile: Tile | None = None,
    dot: str = "tf32x3",
    *,
    bias: Tensor | None = None,
    rectified: bool = False,
    mask_of: Tensor | None = None,
) -> Tensor:
    """The program on a GPU."""
    from glocal.engines.compiled import thin_kernels

    clients, rows, terms = a.shape
    columns = b.shape[1 if transposed else 2]
    tile = tile or tile_of(clients, columns)
    y = a.new_empty((clients, rows, columns))
    biased, masked = bias is not None, mask_of is not None
    thin_kernels.thin_product[(-(-columns // tile.columns), clients)](
        *(a.contiguous(), b.contiguous()),
        *(y if bias is None else bias.contiguous(), y if mask_of is None else mask_of.contiguous()),
        *(y, rows, terms, columns, transposed),
        *(biased, columns if bias is not None and len(bias) > 1 else 0, rectified, masked),
        *(dot, max(16, 1 << (rows - 1).bit_length()), tile.columns, tile.terms),
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    return y


def tile_of(clients: int, columns: int) -> Tile:
    """Wide ones where there are enough of them to fill a card."""
    return Tile(64, 64, 4, 4) if clients * columns >= FILLED * 64 else Tile(32, 64, 2, 4)
