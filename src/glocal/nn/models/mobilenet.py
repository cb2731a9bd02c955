"""MobileNet (v1) with group norm.

Howard et al.: *MobileNets: efficient convolutional neural networks for mobile vision applications*,
2017: a 3×3 convolution, then 13 blocks of a depthwise 3×3 and a pointwise 1×1 convolution. With
1,000 classes it has the paper's 4.2 million parameters (4,231,976), with 10 classes 3,217,226.
Departure: images up to 64×64 are halved three times instead of five, or nothing would be left.
"""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional

from glocal.core.errors import GlocalError
from glocal.nn.layers import group_norm
from glocal.nn.models.shapes import Shape, image

WIDTHS = (64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024)
HALVED = (1, 3, 5, 11)


class Separable(nn.Module):
    """A depthwise 3×3 convolution, then a pointwise one, each with norm and ReLU."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(inputs, inputs, 3, stride, padding=1, groups=inputs, bias=False)
        self.norm1 = group_norm(inputs)
        self.pointwise = nn.Conv2d(inputs, outputs, 1, bias=False)
        self.norm2 = group_norm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        x = functional.relu(self.norm1(self.depthwise(x)))
        return functional.relu(self.norm2(self.pointwise(x)))


class MobileNet(nn.Module):
    """``conv``, ``norm``, ``blocks.0`` … ``blocks.12``, ``head``."""

    def __init__(self, shape: tuple[int, int, int], classes: int, width: float) -> None:
        super().__init__()
        large = min(shape[1:]) > 64
        first, *widths = (max(8, int(n * width)) for n in (32, *WIDTHS))
        self.conv = nn.Conv2d(shape[0], first, 3, 2 if large else 1, padding=1, bias=False)
        self.norm = group_norm(first)
        halved = HALVED if large else HALVED[1:]
        self.blocks = nn.Sequential(
            *(
                Separable(a, b, 2 if i in halved else 1)
                for i, (a, b) in enumerate(pairwise([first, *widths]))
            )
        )
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [batch, classes]."""
        x = self.blocks(functional.relu(self.norm(self.conv(x))))
        out: Tensor = self.head(x.mean((2, 3)))
        return out


def mobilenet(input_shape: Shape, classes: int, /, *, width: float = 1.0) -> nn.Module:
    """MobileNet with the paper's width multiplier, such as 0.25; no layer is under 8 wide."""
    if not 0 < width <= 4:
        raise GlocalError(f"mobilenet's width must be a number in (0, 4], not {width}.")
    return MobileNet(image("mobilenet", input_shape, 8), classes, width)
