"""What a data set hands to ``federation``, and what a listing says of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class Source:
    """What ``federation`` takes: arrays, or a table and the names of two of its columns."""

    x: Any
    y: Any
    clients: Any = None
    """The natural clients, if the data has some."""
    classes: int | None = None
    central: tuple[Any, Any] | None = None
    """Features and labels of an official test set that belongs to no client."""


@dataclass(frozen=True)
class Entry:
    """A data set under its name."""

    make: Callable[..., Source]
    """Its arguments are those a user may give in brackets, as in ``mnist(examples=6000)``."""
    licence: str
    origin: str
    """Where it comes from if it is not there yet."""
