"""What a model is asked for, checked before it is built."""

from __future__ import annotations

from typing import Any

from glocal.core.errors import GlocalError

_WIDEST = 1 << 16


def image(model: str, shape: tuple[int, ...], smallest: int) -> tuple[int, int, int]:
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


def sequence(model: str, shape: tuple[int, ...]) -> None:
    """Inputs are sequences of whole numbers."""
    if len(shape) != 1:
        raise GlocalError(
            f"model {model!r} reads sequences of token numbers (time,), not inputs of shape "
            f"{shape}: give it text data, or use 'mlp' or 'cnn'."
        )


def whole(model: str, name: str, value: Any, least: int = 1) -> int:
    """A size: a whole number from ``least`` up."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _WIDEST:
        raise GlocalError(
            f"model {model!r} got {name}={value!r}: give a whole number from {least} to {_WIDEST}."
        )
    return value


def probability(model: str, name: str, value: Any) -> float:
    """A probability of dropping: in [0, 1)."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise GlocalError(f"model {model!r} got {name}={value!r}: give a number in [0, 1).")
    return float(value)


def flag(model: str, name: str, value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise GlocalError(f"model {model!r} got {name}={value!r}: give true or false.")
    return value
