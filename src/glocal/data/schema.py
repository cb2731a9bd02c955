"""The schema of an example: what a server must know to generate examples.

All participants agree on it beforehand: image size, columns, number of classes. For a table, the
categories of a column are those that occur at any client, and numbers are standardised with the
statistics of :mod:`glocal.data.preprocessing.statistics`. Both are computed without protection,
and :mod:`glocal.slots.privacy` does not account for them.
"""

from __future__ import annotations

from dataclasses import dataclass

from glocal.core.errors import GlocalError
from glocal.data.federation import Federation


@dataclass(frozen=True)
class Schema:
    """The shape of an example, the number of classes, and the one-hot columns of a table."""

    shape: tuple[int, ...]
    classes: int
    categories: tuple[tuple[int, int], ...] = ()
    """The first and last (exclusive) of each category's one-hot columns."""
    numbers: bool = True
    """Whether inputs are numbers with one label each; if not, they are token ids or sequences."""
    labelled: bool = True
    """Whether labels are classes; if not, they are numbers."""
    tokens: bool = False
    """Whether inputs are the ids of tokens."""
    attributes: tuple[tuple[str, int], ...] = ()
    """The protected attributes, each with how many values it has."""

    @classmethod
    def of(cls, fed: Federation) -> Schema:
        """The schema of a federation."""
        shape = tuple(int(size) for size in fed.x.shape[1:])
        numbers = fed.x.is_floating_point() and fed.y.dim() == 1
        categories = tuple((begin, end) for begin, end in fed.describe.get("categories", ()))
        tokens = not fed.x.is_floating_point()
        apart = fed.attributes
        return cls(
            shape=shape,
            classes=fed.classes,
            categories=categories,
            numbers=numbers,
            labelled=bool(fed.target.classes),
            tokens=tokens,
            attributes=() if apart is None else tuple(zip(apart.names, apart.sizes, strict=True)),
        )

    @property
    def images(self) -> bool:
        """Whether an example is (channels, height, width)."""
        return len(self.shape) == 3


def numeric_schema(schema: Schema | None, name: str) -> Schema:
    """The schema, if examples are numbers with a class; else an error about the method."""
    if schema is not None and not schema.labelled:
        raise GlocalError(
            f"{name} generates examples of classes, and labels are numbers here: use another "
            "method, such as fedavg."
        )
    if schema is None or not schema.numbers:
        raise GlocalError(
            f"{name} generates examples of numbers with one label each, and these are sequences of "
            "tokens: give it images or a table."
        )
    return schema


def needs_classes(fed: Federation, what: str) -> None:
    """Raise if labels are numbers: ``what`` is about classes."""
    if not fed.target.classes:
        raise GlocalError(
            f"{what} is about classes, and labels are numbers here (task={fed.target.task!r}): "
            "leave it out."
        )
