"""Small conditional networks for images and for tables: generator, critic and encoder.

Images (channels, height, width) have pixels from 0 to 1 and go through convolutions with group norm
(:mod:`glocal.nn` says why not batch norm); tables go through dense layers. A label is a one-hot
vector beside the code, or a map of it beside the channels.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode

from glocal.core import rng
from glocal.core.types import Params
from glocal.nn.layers import group_norm
from glocal.nn.models.shapes import Shape


def one_hot(y: Tensor, classes: int) -> Tensor:
    """Labels as rows of zeros and a one (``functional.one_hot`` waits for the device)."""
    return (y.unsqueeze(-1) == torch.arange(classes, device=y.device)).to(torch.float32)


class Generator(nn.Module):
    """A code and a label to an example: a GAN's generator, and a VAE's decoder.

    Pixels come as logits: whoever wants shades takes the sigmoid (:func:`shades`).
    """

    def __init__(self, shape: Shape, classes: int, code: int, width: int) -> None:
        super().__init__()
        self.shape, self.width = shape, width
        if len(shape) != 3:
            size = 8 * width
            self.layers = nn.Sequential(
                nn.Linear(code + classes, size),
                nn.ReLU(),
                nn.Linear(size, size),
                nn.ReLU(),
                nn.Linear(size, math.prod(shape)),
            )
            return
        channels, height, breadth = shape
        self.small = (-(-height // 4), -(-breadth // 4))
        middle = (-(-height // 2), -(-breadth // 2))
        self.first = nn.Linear(code + classes, 4 * width * math.prod(self.small))
        self.layers = nn.Sequential(
            group_norm(4 * width),
            nn.ReLU(),
            nn.Upsample(size=middle),
            nn.Conv2d(4 * width, 2 * width, 3, padding=1),
            group_norm(2 * width),
            nn.ReLU(),
            nn.Upsample(size=(height, breadth)),
            nn.Conv2d(2 * width, width, 3, padding=1),
            group_norm(width),
            nn.ReLU(),
            nn.Conv2d(width, channels, 3, padding=1),
        )

    def forward(self, z: Tensor, label: Tensor) -> Tensor:
        """Examples; of images, the logits of their pixels."""
        given = torch.cat([z, label], 1)
        if len(self.shape) == 3:
            given = self.first(given).reshape(len(z), 4 * self.width, *self.small)
        out: Tensor = self.layers(given)
        return out.reshape(len(z), *self.shape)


class Trunk(nn.Module):
    """An example, with or without its label, to features."""

    def __init__(self, shape: Shape, labels: int, width: int) -> None:
        super().__init__()
        self.images = len(shape) == 3
        if not self.images:
            self.size = 8 * width
            self.layers = nn.Sequential(
                nn.Linear(math.prod(shape) + labels, self.size),
                nn.LeakyReLU(0.2),
                nn.Linear(self.size, self.size),
                nn.LeakyReLU(0.2),
            )
            return
        channels, height, breadth = shape
        self.size = 2 * width * -(-height // 4) * -(-breadth // 4)
        self.layers = nn.Sequential(
            nn.Conv2d(channels + labels, width, 3, 2, padding=1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 3, 2, padding=1),
            group_norm(2 * width),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
        )

    def forward(self, x: Tensor, label: Tensor | None = None) -> Tensor:
        """Features [batch, size]."""
        x = x if self.images else x.flatten(1)
        if label is not None:
            spread = label.reshape(*label.shape, *(1,) * (x.dim() - 2))
            x = torch.cat([x, spread.expand(*label.shape, *x.shape[2:])], 1)
        out: Tensor = self.layers(x)
        return out


class Critic(nn.Module):
    """Real or not, and of which class (AC-GAN: Odena, Olah, Shlens, ICML 2017)."""

    def __init__(self, shape: Shape, classes: int, code: int, width: int) -> None:
        super().__init__()
        self.trunk = Trunk(shape, 0, width)
        self.real = nn.Linear(self.trunk.size, 1)
        self.classes = nn.Linear(self.trunk.size, classes)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 1 + classes]: the logit of being real, then those of the classes."""
        seen = self.trunk(x)
        return torch.cat([self.real(seen), self.classes(seen)], 1)


class Encoder(nn.Module):
    """An example and its label to a normal distribution of codes."""

    def __init__(self, shape: Shape, classes: int, code: int, width: int) -> None:
        super().__init__()
        self.trunk = Trunk(shape, classes, width)
        self.code = nn.Linear(self.trunk.size, 2 * code)

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        """[batch, 2 · code]: means, then logarithms of variances."""
        out: Tensor = self.code(self.trunk(x, label))
        return out


KINDS: dict[str, Callable[[Shape, int, int, int], nn.Module]] = {
    "critic": Critic,
    "encoder": Encoder,
    "generator": Generator,
}


class _Undrawn(TorchFunctionMode):
    """Layers leave their parameters as they are: vmap forbids to draw, also what nobody reads."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class Nets:
    """Networks for examples of one shape, as pure functions of their parameters."""

    shape: Shape
    classes: int
    code: int
    width: int
    dense: bool = False
    """Whether images go through dense layers, as tables do."""

    @property
    def inner(self) -> Shape:
        """The shape of an example as the networks see it."""
        return (math.prod(self.shape),) if self.dense else self.shape

    def module(self, kind: str) -> nn.Module:
        """A network with parameters newly drawn."""
        return KINDS[kind](self.inner, self.classes, self.code, self.width)

    def init(self, kind: str, key: Tensor) -> Params:
        """A network's parameters, the same for the same key."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(rng.seed_of(key))
            module = self.module(kind)
        return {k: v.detach().to(key.device) for k, v in module.named_parameters()}

    def generator(self, w: Params, z: Tensor, y: Tensor) -> Tensor:
        """Examples of classes ``y``; of images, the logits of their pixels."""
        out = self._call("generator", w, z, one_hot(y, self.classes))
        return out.reshape(len(z), *self.shape)

    def critic(self, w: Params, x: Tensor) -> tuple[Tensor, Tensor]:
        """The logit of being real, and those of the classes."""
        out = self._call("critic", w, x.reshape(len(x), *self.inner))
        return out[:, 0], out[:, 1:]

    def encoder(self, w: Params, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and logarithm of the variance of each example's code."""
        x = x.reshape(len(x), *self.inner)
        out = self._call("encoder", w, x, one_hot(y, self.classes))
        return out[:, : self.code], out[:, self.code :]

    def _call(self, kind: str, w: Params, *inputs: Tensor) -> Tensor:
        out: Tensor = functional_call(_skeletons.of(self, kind), w, inputs)
        return out


def _skeleton(nets: Nets, kind: str) -> nn.Module:
    """The network without numbers: its parameters are always given."""
    with torch.device("meta"), _Undrawn():
        return nets.module(kind)


class _Skeletons(threading.local):
    """Each thread has its own: during a call, the parameters given are in the module."""

    def __init__(self) -> None:
        self.of = lru_cache(maxsize=64)(_skeleton)


_skeletons = _Skeletons()


def shades(x: Tensor) -> Tensor:
    """Examples as they are: of images the sigmoid of what a generator said."""
    return torch.sigmoid(x) if x.dim() == 4 else x
