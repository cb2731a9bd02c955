"""Multi-layer perceptrons, and logistic regression as the one without hidden layers.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: *Communication-efficient learning of deep networks
from decentralized data*, AISTATS 2017 ("2NN"): two hidden layers of 200, 199,210 parameters on
MNIST. Liang et al., *Think locally, act globally*, 2020: 784-512-256-256-128-10, 633,226.

Layers are named ``layers.0``, ``layers.1``, …, one for each Linear.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional

from glocal.nn.layers import Dropout
from glocal.nn.models.shapes import Shape, sizes


class MLP(nn.Module):
    """Linear layers with ReLU, then dropout, between them; the input is flattened."""

    def __init__(self, widths: Sequence[int], dropout: float = 0.0) -> None:
        super().__init__()
        pairs = list(pairwise(widths))
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairs)
        self.dropouts = nn.ModuleList(Dropout(dropout) for _ in pairs[:-1])

    def forward(self, x: Tensor) -> Tensor:
        """Logits [batch, classes]."""
        x = self.layers[0](x.flatten(1))
        for dropout, layer in zip(self.dropouts, self.layers[1:], strict=True):
            x = layer(dropout(functional.relu(x)))
        return x


def mlp(input_shape: Shape, classes: int, /, *hidden: int, dropout: float = 0.0) -> nn.Module:
    """``mlp(512, 256, dropout=0.2)``: the hidden widths, (64, 64) unless given."""
    widths = hidden or (64, 64)
    for width in widths:
        sizes(width=width)
    return MLP([math.prod(input_shape), *widths, classes], dropout)


def logistic(input_shape: Shape, classes: int, /) -> nn.Module:
    """Multinomial logistic regression: one Linear layer."""
    return MLP([math.prod(input_shape), classes])
