"""Any model as an encoder, and a head of the same name and shape whatever the encoder is.

Clients whose encoders differ can share the head: Liang et al., *Think locally, act globally:
federated learning with local and global representations*, 2020, where only θ^g, the top, is
communicated, so that each client's ℓ_i may have an architecture of its own.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from glocal.core import validation
from glocal.nn.models.shapes import sizes


class Headed(nn.Module):
    """``encoder``, whose outputs are a representation, then ReLU and a Linear ``head``."""

    def __init__(self, encoder: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [batch, classes]."""
        logits: Tensor = self.head(functional.relu(self.encoder(x)))
        return logits


def headed(
    input_shape: tuple[int, ...], classes: int, /, encoder: Any = "mlp", *, width: int = 32
) -> nn.Module:
    """``headed(cnn, width=32)``: a model with ``width`` outputs, and ``head`` on top of it."""
    from glocal.nn.models import REGISTRY  # which has this one, too

    sizes(width=width)
    inner: nn.Module = validation.build("model", REGISTRY, encoder, input_shape, width)
    return Headed(inner, width, classes)
