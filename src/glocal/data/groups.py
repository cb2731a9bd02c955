"""Groups: rows that belong together, such as the visits of one patient, are one unit.

Rows of a group are alike. If one of them is trained on and another tested on, the test says how
well a model remembers; and ten alike test rows are no ten pieces of evidence. So a group goes to
one client and, whole, to one split (:mod:`glocal.data.group_split`), and an evaluation counts it as
one unit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal.core.errors import GlocalError, shown
from glocal.data import validation as check
from glocal.data.split import Split


def units(
    ids: Any, rows: int, where: Callable[[int], str] = check.row_index
) -> tuple[Tensor, tuple[str, ...]]:
    """The unit 0, 1, … of each row, and the units' names, from one group id for each row."""
    return check.owners(ids, rows, "group", where)


def labels_of(unit: Tensor, y: Tensor) -> tuple[Tensor, bool]:
    """The most frequent label of each unit, the lowest where several are, and if each has one.

    Sequences of labels have no most frequent one: a unit then has those of its first row.
    """
    count = int(unit.max()) + 1
    if y.dim() > 1:
        _, first_row = np.unique(unit.numpy(), return_index=True)
        return y[torch.from_numpy(first_row)], False
    pair, size = torch.unique(torch.stack([unit, y]), dim=1, return_counts=True)
    # Pairs are sorted by unit, then label; a stable sort by size puts each unit's largest first.
    order = torch.argsort(size, descending=True, stable=True)
    order = order[torch.argsort(pair[0][order], stable=True)]
    first = torch.searchsorted(pair[0][order].contiguous(), torch.arange(count))
    return pair[1][order][first], pair.shape[1] == count


def check_clients(
    unit: Tensor, rows: Split, groups: tuple[str, ...], names: tuple[str, ...]
) -> None:
    """Raise where a group has rows at two clients: one would train on what the other tests."""
    owner = torch.repeat_interleave(torch.arange(len(names)), rows.counts())
    pairs = torch.unique(torch.stack([unit[rows.rows], owner]), dim=1)
    counts = torch.bincount(pairs[0], minlength=len(groups))
    spread = (counts > 1).nonzero().flatten().tolist()
    if spread:
        one, other = pairs[1][pairs[0] == spread[0]][:2].tolist()
        others = len(spread) - 1
        more = f" (and {others} group{'s' * (others > 1)} more)" if others else ""
        raise GlocalError(
            f"group {shown(groups[spread[0]])}{more} has rows at clients {shown(names[one])} and "
            f"{shown(names[other])}, so one client would train on what the other is tested on: if "
            "these are different groups with one name, put the client into it (as in "
            "'berlin-17'); if it is one, give its rows to one client."
        )
