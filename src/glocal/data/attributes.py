"""Protected attributes: what each row says of a person beside features and label.

A protected attribute (sex, origin, an age group) is never a feature. It is there for two uses: a
method that hides it trains against it (a step's mini-batch has its codes as ``attributes``), and an
evaluation measures how much of it a representation or a prediction gives away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from glocal.core.errors import GlocalError, shown
from glocal.data import validation as check
from glocal.data.preprocessing.report import ColumnReport
from glocal.data.table import Table, listed, named_columns

MOST_VALUES = 20
"""An attribute with more is a number or an id, of which nobody can be told apart by groups."""

Protected = Sequence[str] | Mapping[str, Any]
"""The columns of a table, or a value for each row by the attribute's name."""


@dataclass(frozen=True, eq=False, repr=False)
class Attributes:
    """The protected attributes of all rows."""

    names: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]
    """What each attribute may be, in the order of its codes."""
    codes: Tensor
    """[n, attributes] in int64: the place of each row's value among ``values``."""

    def __repr__(self) -> str:
        """Their names: tensors would fill the screen."""
        return f"<Attributes {', '.join(self.names)} of {len(self.codes)} rows>"

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many values each attribute has."""
        return tuple(len(each) for each in self.values)

    @property
    def device(self) -> torch.device:
        """Where the codes are."""
        return self.codes.device

    def __getitem__(self, rows: Tensor) -> Attributes:
        """The attributes of some rows."""
        return replace(self, codes=self.codes[rows])

    def to(self, device: torch.device | str) -> Attributes:
        """The same attributes on another device."""
        return replace(self, codes=self.codes.to(device))

    def describe(self) -> dict[str, list[str]]:
        """Names and values, for records."""
        named = zip(self.names, self.values, strict=True)
        return {name: list(values) for name, values in named}


def columns_of(protected: Protected, table: Table | None) -> list[str]:
    """The columns of a table that are protected; none of an array's attributes is a column."""
    if isinstance(protected, Mapping):
        if table is not None and protected:
            raise GlocalError(
                "protected= names the columns of a table that are protected: give their names "
                "instead of values."
            )
        return []
    if table is None:
        if protected:
            raise GlocalError(
                "protected= names columns, but x is not a table: give the values, as in "
                "protected={'sex': values}."
            )
        return []
    return named_columns(protected, table, "protected")


def check_apart(names: Iterable[str], *, used: Sequence[str], features: Sequence[str]) -> None:
    """Raise if a protected column is a feature, or what the labels, clients or groups are."""
    for name in names:
        if name in used:
            raise GlocalError(
                f"protected= names {shown(name)}, which holds labels, clients or groups: name the "
                "column of an attribute that is to be hidden."
            )
        if name in features:
            raise GlocalError(
                f"features= names {shown(name)}, which protected= names, too: a protected "
                "attribute is no feature, so leave it out of one of the two."
            )


def attributes_of(
    protected: Protected,
    columns: Sequence[str],
    table: Table | None,
    rows: int,
    where: Callable[[int], str] = check.row_index,
) -> Attributes | None:
    """The protected attributes, as columns of the table or as values; None: there are none."""
    given: dict[str, Any] = {}
    if table is not None:
        given = {name: table.ids(name, "a protected attribute") for name in columns}
    elif isinstance(protected, Mapping):
        given = {str(name): values for name, values in protected.items()}
    if not given:
        return None
    coded = [_coded(name, values, rows, where) for name, values in given.items()]
    return Attributes(
        names=tuple(given),
        values=tuple(names for _, names in coded),
        codes=torch.stack([codes for codes, _ in coded], dim=1),
    )


def _coded(
    name: str, values: Any, rows: int, where: Callable[[int], str]
) -> tuple[Tensor, tuple[str, ...]]:
    """The codes of one attribute and what each stands for; words and numbers in their order."""
    array = check.as_array(values, f"protected attribute {shown(name)}")
    if array.shape != (rows,):
        raise GlocalError(
            f"protected attribute {shown(name)} has shape {array.shape} for {rows} rows: give one "
            "value for each row."
        )
    gaps = [row for row, value in enumerate(array.tolist()) if check.missing(value)]
    if gaps:
        raise GlocalError(
            f"protected attribute {shown(name)} is missing in {len(gaps)} of {rows} rows, first in "
            f"{where(gaps[0])}: leave such rows out, or write a value of its own there, such as "
            "'unknown'."
        )
    codes, names = check.owners(array, rows, "protected attribute", where)
    if len(names) < 2:
        raise GlocalError(
            f"protected attribute {shown(name)} is {shown(names[0])} in every row, so there is "
            "nothing to hide: leave it out."
        )
    if len(names) > MOST_VALUES:
        raise GlocalError(
            f"protected attribute {shown(name)} has {len(names)} values ({listed(names[:3])}, …), "
            f"and at most {MOST_VALUES} can be told apart: group them first, as in age groups."
        )
    return codes, tuple(names)


def reports(attributes: Attributes | None) -> list[ColumnReport]:
    """What became of the protected columns of a table."""
    if attributes is None:
        return []
    each = zip(attributes.names, attributes.values, strict=True)
    return [ColumnReport(n, f"{len(v)} words", "protected: no feature") for n, v in each]
