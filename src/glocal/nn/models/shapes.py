"""Checks of input shapes and layer sizes, made before a model is built."""

from __future__ import annotations

from torch import Tensor

from glocal.core.errors import GlocalError
from glocal.core.validation import integer

Shape = tuple[int, ...]
"""Of one example."""

WIDEST = 1 << 16

MOST_WORDS = 1 << 20
"""Of a vocabulary."""


def image(model: str, shape: Shape, smallest: int) -> tuple[int, int, int]:
    """``(channels, height, width)`` of images no smaller than the model can take."""
    if len(shape) != 3:
        raise GlocalError(
            f"model {model!r} reads images (channels, height, width), not inputs of shape {shape}: "
            "reshape them, such as x.view(-1, 1, 28, 28), or use 'mlp'."
        )
    if min(shape[1:]) < smallest:
        raise GlocalError(
            f"model {model!r} needs images of at least {smallest}×{smallest}, not "
            f"{shape[1]}×{shape[2]}: enlarge them or use 'mlp'."
        )
    return shape[0], shape[1], shape[2]


def sequence(model: str, shape: Shape) -> None:
    """Raise unless inputs are sequences of token ids."""
    if len(shape) != 1:
        raise GlocalError(
            f"model {model!r} reads sequences of token ids (time,), not inputs of shape {shape}: "
            "give it text data, or use 'mlp' or 'cnn'."
        )


def tokens(x: Tensor) -> Tensor:
    """The inputs, if they are token ids."""
    if x.is_floating_point():
        raise GlocalError(
            "language models read token ids, not floats: give x as an integer tensor "
            "[batch, time], or use 'mlp'."
        )
    return x


def sizes(low: int = 1, high: int = WIDEST, **values: int) -> None:
    """Raise unless every value is an integer from ``low`` to ``high``."""
    for name, value in values.items():
        integer(value, name, low, high)
