"""How operations of a step are decomposed before TorchInductor makes kernels of them.

On a GPU, a gradient of weights is a sum over the few examples of a mini-batch. As a product of
matrices it would go to memory and back; written out, it is made where the weights are updated.
Products of few rows there are an operator of our own. On a CPU, very small products cost less in a
loop than as calls of a library, and large ones less in another library, where there is reason to
ask for it. What becomes of a pixel in several patches is added up in one order: the compiler's own
rule adds them on a GPU as they come, and two runs then differ in their last bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from glocal.engines.compiled import large_products, thin_products

THIN = 16
"""Terms up to which a sum is written out inside a kernel on a GPU."""

SMALL_PRODUCT = 20_000
"""Multiplications up to which a client's product of matrices is done by a loop on a CPU."""


def rules(device: torch.device, *, thin: bool, large: bool) -> dict[Any, Callable[..., Any]]:
    """By operation.

    ``thin``: products of few rows on a GPU may be an operator of our own (not beside convolutions,
    where a step took four times as long with it). ``large``: large products on a CPU are oneDNN's.
    """
    from torch._inductor.decomposition import select_decomp_table

    def bmm(a: Tensor, b: Tensor) -> Any:
        rows, terms, columns = a.shape[1], a.shape[2], b.shape[2]
        if device.type == "cuda":
            as_loop = terms <= THIN and rows * columns >= 16 * terms
            if not as_loop and thin and thin_products.is_thin(a, b):
                return thin_products.product(a, b)
        else:
            as_loop = rows * terms * columns <= SMALL_PRODUCT
            if large and large_products.is_large(a, b):
                return large_products.product(a, b)
        return (a.unsqueeze(-1) * b.unsqueeze(1)).sum(2) if as_loop else NotImplemented

    by_operation: dict[Any, Callable[..., Any]] = dict(select_decomp_table())
    by_operation[torch.ops.aten.bmm.default] = bmm
    by_operation[torch.ops.aten.unfold_backward.default] = folded
    return by_operation


def folded(gradient: Tensor, sizes: Sequence[int], dim: int, size: int, step: int) -> Tensor:
    """The gradient of ``unfold``, as a sum of its parts, each with zeros around it."""
    dim %= len(sizes)
    after = len(sizes) - 1 - dim  # dimensions behind the one that was unfolded
    places = gradient.shape[dim]
    total = torch.zeros((), dtype=gradient.dtype, device=gradient.device)
    for i in range(size):
        part = gradient.select(-1, i)
        if step > 1:  # zeros between one place and the next
            part = part.unsqueeze(dim + 1)
            part = functional.pad(part, (0, 0) * after + (0, step - 1))
            part = part.flatten(dim, dim + 1).narrow(dim, 0, (places - 1) * step + 1)
        rest = sizes[dim] - i - part.shape[dim]
        total = total + functional.pad(part, (0, 0) * after + (i, rest))
    return total
