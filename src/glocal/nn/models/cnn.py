"""Two small convolutional networks: FedAvg's "TwoCNN", and LeNet as used on CIFAR-10.

cnn: McMahan, Moore, Ramage, Hampson, Agüera y Arcas: *Communication-efficient learning of deep
networks from decentralized data*, AISTATS 2017: convolutions of 32 and 64 channels of 5×5 that keep
the size, each with a 2×2 pooling, then a layer of 512. With 10 classes it has 1,663,370 parameters
on 1×28×28 and 2,156,490 on 3×32×32.

lenet: LeCun, Bottou, Bengio, Haffner: *Gradient-based learning applied to document recognition*,
Proc. IEEE 1998; the widths are those of Liang et al., *Think locally, act globally*, 2020:
convolutions of 6 and 16 channels of 5×5, each with a 2×2 pooling, then 400-120-100-10. On 3×32×32
with 10 classes it has 64,102 parameters, 2,872 of them in the convolutions. Departure: images under
16×16 are padded by 2 before each convolution, since nothing would be left of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional

from glocal.nn.models.shapes import Shape, image


class ConvNet(nn.Module):
    """Convolutions of 5×5 ``convs.0``, ``convs.1``, … with pooling, and Linears ``layers.0``, …."""

    def __init__(
        self, shape: tuple[int, int, int], channels: Sequence[int], widths: Sequence[int], pad: int
    ) -> None:
        super().__init__()
        pairs = pairwise([shape[0], *channels])
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 5, padding=pad) for a, b in pairs)
        height, width = shape[1:]
        for _ in channels:
            height, width = ((side - 4 + 2 * pad) // 2 for side in (height, width))
        pairs = pairwise([channels[-1] * height * width, *widths])
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairs)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [batch, classes]."""
        for conv in self.convs:
            x = functional.max_pool2d(functional.relu(conv(x)), 2)
        x = x.flatten(1)
        for layer in self.layers[:-1]:
            x = functional.relu(layer(x))
        out: Tensor = self.layers[-1](x)
        return out


def cnn(input_shape: Shape, classes: int, /) -> nn.Module:
    """FedAvg's CNN for images of at least 4×4."""
    return ConvNet(image("cnn", input_shape, 4), (32, 64), (512, classes), pad=2)


def lenet(input_shape: Shape, classes: int, /) -> nn.Module:
    """LeNet for images of at least 4×4."""
    shape = image("lenet", input_shape, 4)
    pad = 2 if min(shape[1:]) < 16 else 0
    return ConvNet(shape, (6, 16), (120, 100, classes), pad)
