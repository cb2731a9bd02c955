"""Large products of matrices on a CPU, by oneDNN.

torch leaves products in single precision to MKL, which keeps its widest instructions for Intel's
processors; on others oneDNN, which does not, takes down to half of its time. TorchInductor knows
oneDNN's operator with weights that never change: here it is told of weights that do, as they lie in
memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

LARGE = 1_000_000
"""Multiplications from which a client's product is large: smaller ones take as long, or longer."""

LARGE_UPDATE = 3_000_000
"""The same of a gradient that MKL would add to the weights as it multiplies, which saves a pass."""

MAX_CLIENTS = 16
"""Clients up to which products are made one by one: each is a call, and all of them are copied."""


@cache
def pays(root: Path = Path("/")) -> bool:
    """Whether torch has MKL and oneDNN, and MKL uses narrower instructions than there are."""
    try:
        processor = (root / "proc/cpuinfo").read_text()
    except OSError:  # another system, which does not say so
        return False
    libraries: Any = torch.backends
    both = libraries.mkl.is_available() and libraries.mkldnn.is_available()
    known = both and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return known and "avx512f" in processor and "GenuineIntel" not in processor


def is_large(a: Tensor, b: Tensor) -> bool:
    """Whether ``a @ b``, [clients, rows, terms] and [… columns], is large, in single precision."""
    return _is_like(a, b) and a.shape[1] * a.shape[2] * b.shape[2] >= LARGE


def is_faster(a: Tensor, b: Tensor) -> bool:
    """Whether that is faster than a product which is added to the weights on the way."""
    return _is_like(a, b) and a.shape[1] * a.shape[2] * b.shape[2] >= LARGE_UPDATE


def _is_like(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype == torch.float32 and 0 < len(a) <= MAX_CLIENTS


def product(a: Tensor, b: Tensor) -> Tensor:
    """``a @ b``, client by client."""
    linear = torch.ops.mkldnn._linear_pointwise
    each = [linear(x, y.T, None, "none", [], "") for x, y in zip(a, b, strict=True)]
    return torch.stack(each) if len(each) > 1 else each[0].unsqueeze(0)


@contextmanager
def weights_that_change() -> Iterator[None]:
    """While a step is compiled: TorchInductor calls oneDNN's operator with any weights."""
    from torch._inductor import ir
    from torch._inductor import mkldnn_ir as private
    from torch._inductor.lowering import lowerings

    mkldnn_ir: Any = private
    kind = mkldnn_ir.LinearUnary

    def call(x: Any, weights: Any, bias: Any, and_then: str, *_: Any) -> Any:
        if bias is not None or and_then != "none":
            raise ValueError("products alone are known here, and nothing after them")
        x, weights = kind.require_contiguous(kind.realize_input(x)), kind.realize_input(weights)
        size = [*x.get_size()[:-1], weights.get_size()[0]]
        layout = ir.FixedLayout(x.get_device(), x.get_dtype(), size)
        made = kind(layout, [x, weights], [None, "none", [-1], ""])
        return ir.TensorBox.create(mkldnn_ir._create_output_node(made))

    with patch.dict(lowerings, {torch.ops.mkldnn._linear_pointwise.default: call}):
        yield
