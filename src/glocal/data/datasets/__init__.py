"""Known data sets: where they come from, how they are read and checked."""

from __future__ import annotations

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
    group: Any = None
    """Which rows belong together, if the data says so."""
    protected: tuple[str, ...] = ()
    """The columns of a table that are protected attributes by themselves."""
