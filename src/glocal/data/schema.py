"""What an example looks like: all that a server must know to make examples itself.

It is the schema that everybody agreed on beforehand: image size, columns, number of classes. Of a
table that was read here, the words of a category are those that occur at some client, and numbers
are standardised with the mean and standard deviation over all clients' training data: both are
found without any protection, and :mod:`glocal.slots.privacy` does not count them.
"""

from __future__ import annotations

from dataclasses import dataclass

from glocal.core.errors import GlocalError
from glocal.data.federation import Federation


@dataclass(frozen=True)
class Schema:
    """Shape of an example, number of classes, and which columns of a table belong together."""

    shape: tuple[int, ...]
    classes: int
    categories: tuple[tuple[int, int], ...] = ()
    """From where to where (exclusive) each category's one-hot columns are."""
    numbers: bool = True
    """Whether inputs are numbers; if not, token ids, or labels are sequences."""

    @classmethod
    def of(cls, fed: Federation) -> Schema:
        """The schema of a federation."""
        shape = tuple(int(size) for size in fed.x.shape[1:])
        numbers = fed.x.is_floating_point() and fed.y.dim() == 1
        found = fed.describe.get("categories", ())
        return cls(shape, fed.classes, tuple((begin, end) for begin, end in found), numbers)

    @property
    def images(self) -> bool:
        """Whether an example is (channels, height, width)."""
        return len(self.shape) == 3


def numeric_schema(inputs: Schema | None, who: str) -> Schema:
    """The schema; refuses where there is none, or examples are not numbers."""
    if inputs is None or not inputs.numbers:
        raise GlocalError(
            f"{who} makes examples out of numbers, one label each, and these are sequences of "
            "tokens: give it images or a table."
        )
    return inputs
