"""Data sets by name. A source is a function without arguments that returns a :class:`Source`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from glocal.data.arguments import summary


@dataclass(frozen=True, eq=False)
class Source:
    """What ``federation`` takes: arrays, or a table and the names of two of its columns."""

    x: Any
    y: Any
    clients: Any = None
    """The natural clients, if the data has some."""
    classes: int | None = None


def digits() -> Source:
    """Handwritten digits, 1,797 images of 8×8 in 10 classes; comes with scikit-learn."""
    from sklearn.datasets import load_digits

    data = load_digits()
    return Source(x=data.images[:, None] / 16.0, y=data.target, classes=10)


SOURCES: dict[str, Callable[[], Source]] = {"digits": digits}


def sources() -> dict[str, str]:
    """Every data set by name, with a line about it."""
    return {name: summary(f) for name, f in SOURCES.items()}
