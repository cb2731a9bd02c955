"""VGG-9, the VGG of federated learning papers, with group norm.

Simonyan, Zisserman: *Very deep convolutional networks for large-scale image recognition*, ICLR
2015; the nine layers are those of Wang et al., *Federated learning with matched averaging*, ICLR
2020: 3×3 convolutions of 32, 64, pool, 128, 128, pool, 256, 256, pool, then 512, 512, classes. On
3×32×32 with 10 classes it has 3,491,530 parameters, and 1,728 more in its group norms
(``norm=false`` goes without).
"""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional

from glocal.nn.layers import group_norm
from glocal.nn.models.shapes import Shape, image, sizes


class VGG(nn.Module):
    """``convs.0`` … ``convs.5`` with ``norms`` and Linears ``layers.0`` … ``layers.2``."""

    def __init__(self, shape: tuple[int, int, int], classes: int, width: int, norm: bool) -> None:
        super().__init__()
        channels, height, breadth = shape
        widths = [width * factor for factor in (1, 2, 4, 4, 8, 8)]
        convs = [nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise([channels, *widths])]
        self.convs = nn.ModuleList(convs)
        for conv in convs:
            nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
        self.norms = nn.ModuleList(group_norm(n) if norm else nn.Identity() for n in widths)
        flat = widths[-1] * (height // 8) * (breadth // 8)
        dense = pairwise([flat, 16 * width, 16 * width, classes])
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in dense)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [batch, classes]."""
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            x = functional.relu(norm(conv(x)))
            if i % 2:
                x = functional.max_pool2d(x, 2)
        x = x.flatten(1)
        for layer in self.layers[:-1]:
            x = functional.relu(layer(x))
        out: Tensor = self.layers[-1](x)
        return out


def vgg(input_shape: Shape, classes: int, /, *, width: int = 32, norm: bool = True) -> nn.Module:
    """VGG-9 whose first convolution has ``width`` channels."""
    sizes(width=width)
    return VGG(image("vgg", input_shape, 8), classes, width, norm)
