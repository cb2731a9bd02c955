"""Known data sets: where they come from, how they are read and checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glocal.data.text.text_federation import TextData


@dataclass(frozen=True, eq=False)
class Source:
    """The arguments of ``federation``: arrays, or a table and the names of two of its columns."""

    x: Any = None
    y: Any = None
    clients: Any = None
    """The clients that the data comes with, if any."""
    classes: int | None = None
    central: tuple[Any, Any] | None = None
    """Features and labels of an official test set that belongs to no client."""
    group: Any = None
    """Which rows belong together, if the data says so."""
    protected: tuple[str, ...] = ()
    """The columns of a table that are protected attributes by themselves."""
    task: str | None = None
    """What labels are, if the data says so; none: classes."""
    parts: Any = None
    """Which rows are for training, validation and test, if the data says so."""
    own: bool = False
    """Whether these are files of the user's own that lack clients, which they might have."""
    labels: tuple[str, ...] = ()
    """What classes 0, 1, … are called, where ``y`` has numbers for names."""
    vocabulary: int | None = None
    """How many tokens there are, where integers in ``x`` stand for some."""
    text: TextData | None = None
    """Text of clients of its own, in place of all the rest."""
