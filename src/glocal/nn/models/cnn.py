"""The two-layer CNN of the FedAvg paper ("TwoCNN").

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: *Communication-efficient learning of deep networks
from decentralized data*, AISTATS 2017: convolutions of 32 and 64 channels of 5×5 that keep the
size, each with a 2×2 pooling, then a layer of 512. With 10 classes it has 1,663,370 parameters on
1×28×28 and 2,156,490 on 3×32×32.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from glocal.nn.models.shapes import image


class CNN(nn.Module):
    """Two convolutions ``convs.0``, ``convs.1`` and two Linears ``layers.0``, ``layers.1``."""

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        channels, height, width = shape
        self.convs = nn.ModuleList(
            [nn.Conv2d(channels, 32, 5, padding=2), nn.Conv2d(32, 64, 5, padding=2)]
        )
        self.layers = nn.ModuleList(
            [nn.Linear(64 * (height // 4) * (width // 4), 512), nn.Linear(512, classes)]
        )

    def forward(self, x: Tensor) -> Tensor:
        """Logits [batch, classes]."""
        for conv in self.convs:
            x = functional.max_pool2d(functional.relu(conv(x)), 2)
        out: Tensor = self.layers[1](functional.relu(self.layers[0](x.flatten(1))))
        return out


def cnn(input_shape: tuple[int, ...], classes: int, /) -> nn.Module:
    """The CNN for images of at least 4×4."""
    return CNN(image("cnn", input_shape, 4), classes)
