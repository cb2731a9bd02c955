"""The models in plain PyTorch, for the contestants that take a module."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from peers.work import Arrays, Work


class LeNet(nn.Module):
    """Two convolutions of 5×5, each with a max-pool, and three Linears."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        channels, *sides = shape
        self.convs = nn.ModuleList([nn.Conv2d(channels, 6, 5), nn.Conv2d(6, 16, 5)])
        for _ in self.convs:
            sides = [(side - 4) // 2 for side in sides]
        widths = (16 * math.prod(sides), 120, 100, classes)
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(widths))

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        for conv in self.convs:
            x = functional.max_pool2d(functional.relu(conv(x)), 2)
        x = x.flatten(1)
        for layer in self.layers[:-1]:
            x = functional.relu(layer(x))
        logits: Tensor = self.layers[-1](x)
        return logits


def build(work: Work) -> nn.Module:
    """The case's model with the parameters it begins with."""
    if work.model == "lenet":
        module: nn.Module = LeNet(work.input_shape, work.classes)
    else:
        widths = (math.prod(work.input_shape), *hidden(work.model), work.classes)
        layers: list[nn.Module] = []
        for pair in pairwise(widths):
            layers += [nn.Linear(*pair), nn.ReLU()]
        module = nn.Sequential(*layers[:-1])
    with torch.no_grad():
        for own, given in zip(module.parameters(), work.initial, strict=True):
            own.copy_(torch.from_numpy(given))
    return module


def hidden(model: str) -> list[int]:
    """The widths of ``mlp(200, 200)``."""
    return [int(width) for width in model.removeprefix("mlp(").removesuffix(")").split(",")]


def exported(module: nn.Module) -> Arrays:
    """The parameters as arrays."""
    return [p.detach().cpu().numpy().copy() for p in module.parameters()]


def threads(setting: str) -> None:
    """``1 thread``, or as many as PyTorch takes by itself."""
    if setting == "1 thread":
        torch.set_num_threads(1)
