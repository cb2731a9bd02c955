"""Clients with too few examples, which are left out where the user says how few these are."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from typing import Any

import torch

from glocal.core.errors import GlocalError, shown
from glocal.data import validation as check

MOST_NAMES = 10
"""The clients that a message names."""


def kept_rows(
    ids: Any, group: Any, least: int, where: Callable[[int], str] = check.row_index
) -> tuple[list[int], dict[str, int]]:
    """The rows of clients with ``least`` examples or more, and how many each of the others has.

    Rows of a group are one example.
    """
    owner, names = check.owners(ids, len(ids), where=where)
    unit = torch.arange(len(owner))
    if group is not None:
        unit, _ = check.owners(group, len(owner), "group", where)
    pairs = torch.unique(torch.stack([owner, unit]), dim=1)
    counts = torch.bincount(pairs[0], minlength=len(names))
    small = counts < least
    if small.all():
        raise GlocalError(
            f"no client has the {least} examples of min_examples={least}: the largest has "
            f"{int(counts.max())}; ask for fewer."
        )
    left_out = {names[k]: int(counts[k]) for k in small.nonzero().flatten().tolist()}
    return (~small[owner]).nonzero().flatten().tolist(), left_out


def at(rows: list[int], given: Any) -> Any:
    """One value for each of these rows; the name of a column, or a number, stays what it is."""
    if given is None or isinstance(given, str | numbers.Integral):
        return given
    return check.as_array(given, "the data")[rows]


def named(rows: list[int]) -> Callable[[int], str]:
    """What rows are called that these are left of."""
    return lambda row: check.row_index(rows[row])


def sentence(left_out: Mapping[str, int], least: int, also: str = "") -> str:
    """Who was left out, with the number of examples of each; ``also`` is why else."""
    named = [f"{shown(name)} ({count})" for name, count in left_out.items()]
    more = len(named) - MOST_NAMES
    others = f" and {more} more" if more > 0 else ""
    return (
        f"clients with fewer than {least} examples{also} were left out: "
        f"{', '.join(named[:MOST_NAMES])}{others}."
    )
