"""A small network of dense layers as pure functions: ReLU between them, none after the last.

Its parameters are drawn from a key, as ``nn.Linear`` draws its own: uniform within 1 / √inputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor
from torch.nn import functional

from glocal.core import rng
from glocal.core.types import Params


def dense_init(key: Tensor, widths: Sequence[int], prefix: str) -> Params:
    """Parameters of layers of these widths, the inputs' first, named ``prefix.0.weight``, …."""
    params: Params = {}
    for i, (inputs, outputs) in enumerate(pairwise(widths)):
        shapes = {"weight": (outputs, inputs), "bias": (outputs,)}
        for j, (name, shape) in enumerate(shapes.items()):
            drawn = rng.uniform(rng.fold(rng.fold(key, i), j), shape)
            params[f"{prefix}.{i}.{name}"] = (2 * drawn - 1) / math.sqrt(inputs)
    return params


def dense(params: Params, x: Tensor, prefix: str) -> Tensor:
    """The network's output: of each vector in the last dimension of ``x``."""
    layers = sum(name.startswith(f"{prefix}.") and name.endswith(".weight") for name in params)
    for i in range(layers):
        x = functional.relu(x) if i else x
        x = functional.linear(x, params[f"{prefix}.{i}.weight"], params[f"{prefix}.{i}.bias"])
    return x
