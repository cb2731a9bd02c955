"""The types of a data set: its content, and its entry in the registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class Source:
    """The arguments of ``federation``: arrays, or a table and the names of two of its columns."""

    x: Any
    y: Any
    clients: Any = None
    """The clients that the data comes with, if any."""
    classes: int | None = None
    central: tuple[Any, Any] | None = None
    """Features and labels of an official test set that belongs to no client."""


@dataclass(frozen=True)
class Entry:
    """A data set of the registry."""

    make: Callable[..., Source]
    """Its arguments are those a user may give in brackets, as in ``mnist(examples=6000)``."""
    licence: str
    origin: str
    """Where it is downloaded from."""
