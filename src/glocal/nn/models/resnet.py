"""Residual networks with group norm.

He, Zhang, Ren, Sun: *Deep residual learning for image recognition*, CVPR 2016; group norm for batch
norm as in Hsieh et al., *The non-IID data quagmire of decentralized machine learning*, ICML 2020.
Images up to 64×64 get the CIFAR stem (3×3, stride 1), larger ones that of the paper (7×7, stride 2,
pooling). With 10 classes on 3×32×32: resnet18 11,173,962 parameters, resnet10 (one block in each of
the four stages) 4,903,242.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn
from torch.nn import functional

from glocal.core.errors import unknown
from glocal.nn.layers import SpectralLinear, group_norm
from glocal.nn.models.shapes import Shape, image, sizes

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "silu": functional.silu,
}


class Block(nn.Module):
    """Two 3×3 convolutions and a shortcut, which is a 1×1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int, activation: str) -> None:
        super().__init__()
        self.activation = activation
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = group_norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = group_norm(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), group_norm(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        act = ACTIVATIONS[self.activation]
        out = act(self.norm1(self.conv1(x)))
        return act(self.norm2(self.conv2(out)) + self.shortcut(x))


class ResNet(nn.Module):
    """``conv``, ``norm``, ``stages.0`` … ``stages.3``, ``head``."""

    def __init__(
        self,
        shape: tuple[int, int, int],
        classes: int,
        blocks: Sequence[int],
        width: int,
        activation: str,
        spectral: bool,
    ) -> None:
        super().__init__()
        self.activation = activation
        self.large = min(shape[1:]) > 64
        kernel, stride = (7, 2) if self.large else (3, 1)
        self.conv = nn.Conv2d(shape[0], width, kernel, stride, padding=kernel // 2, bias=False)
        self.norm = group_norm(width)
        self.stages = nn.ModuleList()
        inputs = width
        for i, n in enumerate(blocks):
            outputs = width << i
            stage = nn.Sequential()
            for j in range(n):
                stage.append(Block(inputs, outputs, 2 if i and not j else 1, activation))
                inputs = outputs
            self.stages.append(stage)
        self.head = (SpectralLinear if spectral else nn.Linear)(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [batch, classes]."""
        x = ACTIVATIONS[self.activation](self.norm(self.conv(x)))
        if self.large:
            x = functional.max_pool2d(x, 3, 2, padding=1)
        for stage in self.stages:
            x = stage(x)
        out: Tensor = self.head(x.mean((2, 3)))
        return out


def _builder(name: str, blocks: Sequence[int]) -> Callable[..., nn.Module]:
    def build(
        input_shape: Shape,
        classes: int,
        /,
        *,
        width: int = 64,
        activation: str = "relu",
        spectral: bool = False,
    ) -> nn.Module:
        """Channels of the first stage; relu or silu; spectral norm on the last layer or not."""
        if activation not in ACTIVATIONS:
            raise unknown("activation", activation, ACTIVATIONS)
        # Under 4 channels, group norm would have nothing to compare a single pixel with.
        sizes(low=4, width=width)
        return ResNet(image(name, input_shape, 8), classes, blocks, width, activation, spectral)

    return build


resnet10 = _builder("resnet10", (1, 1, 1, 1))
resnet18 = _builder("resnet18", (2, 2, 2, 2))
