"""LeNet as federated learning papers use it on CIFAR-10.

LeCun, Bottou, Bengio, Haffner: *Gradient-based learning applied to document recognition*, Proc.
IEEE 1998; the widths are those of Liang et al., *Think locally, act globally*, 2020: convolutions
of 6 and 16 channels of 5×5, each with a 2×2 pooling, then 400-120-100-10. On 3×32×32 with 10
classes it has 64,102 parameters, 2,872 of them in the convolutions. Departure: images under 16×16
are padded by 2 before each convolution, since nothing would be left of them.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from glocal.nn.models.shapes import image


class LeNet(nn.Module):
    """Two convolutions ``convs.0``, ``convs.1`` and three Linears ``layers.0`` … ``layers.2``."""

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        channels, *sides = shape
        pad = 2 if min(sides) < 16 else 0
        self.convs = nn.ModuleList(
            [nn.Conv2d(channels, 6, 5, padding=pad), nn.Conv2d(6, 16, 5, padding=pad)]
        )
        for _ in self.convs:
            sides = [(side - 4 + 2 * pad) // 2 for side in sides]
        self.layers = nn.ModuleList(
            [
                nn.Linear(16 * sides[0] * sides[1], 120),
                nn.Linear(120, 100),
                nn.Linear(100, classes),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        """Logits [batch, classes]."""
        for conv in self.convs:
            x = functional.max_pool2d(functional.relu(conv(x)), 2)
        x = x.flatten(1)
        for layer in self.layers[:-1]:
            x = functional.relu(layer(x))
        out: Tensor = self.layers[-1](x)
        return out


def lenet(input_shape: tuple[int, ...], classes: int, /) -> nn.Module:
    """LeNet for images of at least 4×4."""
    return LeNet(image("lenet", input_shape, 4), classes)
