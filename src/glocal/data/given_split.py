"""Splits that the data brings: which part each row is in, and an official test set among clients.

A client that has no validation rows of its own validates on some of its training rows, the share of
validation among training and validation, drawn so that both parts have its label shares. All folds
have the same test rows, so repeats differ in training alone.

The official test set is cut by training labels: of each class, a client gets the share of the test
rows that it has of the training rows. So no test row is two clients', all are somebody's if every
class is trained on, and a client's test set has its own label shares where the official test set
has those of the training set (Liang et al., *Think locally, act globally*, 2020, section 5.2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from glocal.core import rng
from glocal.core.errors import GlocalError, shown
from glocal.data import validation as check
from glocal.data.split import Split, UnsplitData, circle, from_counts, keyed

PARTS = {
    "train": 0,
    "training": 0,
    "val": 1,
    "valid": 1,
    "validation": 1,
    "dev": 1,
    "test": 2,
    "testing": 2,
}
"""What a part is called, in any case of letters, and its code."""

TRAIN, VAL, TEST = 0, 1, 2
WORDS = ("train", "val", "test")


def codes(parts: Any, rows: int, where: Callable[[int], str] = check.row_index) -> Tensor:
    """The code of each row's part, from one word for each."""
    given = check.as_array(parts, "parts").tolist()
    if not isinstance(given, list) or len(given) != rows:
        count = len(given) if isinstance(given, list) else 1
        raise GlocalError(f"parts has {count} entries for {rows} rows: give one for each row.")
    found = [PARTS.get(str(each).strip().lower()) for each in given]
    if None in found:
        row = found.index(None)
        raise GlocalError(
            f"{where(row)} is in the part {shown(str(given[row]))}, and parts are train, val and "
            "test: write one of these."
        )
    return torch.tensor(found)


def check_parts(part: Tensor, clients: Split, names: tuple[str, ...]) -> None:
    """Raise where a client could not train, validate or be tested."""
    for k, name in enumerate(names):
        train, val, test = torch.bincount(part[clients.of(k)], minlength=3).tolist()
        lacks = "test" if not test else "training" if train < (1 if val else 2) else ""
        if lacks:
            raise GlocalError(
                f"client {shown(name)} has {train} training, {val} validation and {test} test rows "
                f"by the parts given, which is too few for {lacks}: give it more, or leave it out."
            )


def split_as_given(data: UnsplitData) -> tuple[Split, Split, Split]:
    """The training, validation and test rows as the data says."""
    assert data.part is not None
    client = torch.repeat_interleave(torch.arange(len(data.rows)), data.rows.counts())
    part = data.part[data.rows.rows]

    def of(code: int) -> Split:
        chosen = part == code
        counts = torch.bincount(client[chosen], minlength=len(data.rows))
        return from_counts(data.rows.rows[chosen], counts)

    train, val, test = (of(code) for code in (TRAIN, VAL, TEST))
    return (*_with_validation(data, train, val), test)


def _with_validation(data: UnsplitData, train: Split, val: Split) -> tuple[Split, Split]:
    """Some training rows for the validation of clients that have no rows for it."""
    counts = train.counts()
    share = data.shares[1] / (data.shares[0] + data.shares[1])
    wanted = torch.floor(counts.double() * share + 0.5).long().clamp(min=1).minimum(counts - 1)
    wanted = torch.where(val.counts() > 0, 0, wanted)
    rows = circle(train, data.strata, data.seed, torch.zeros_like(counts), data.numbers)
    client = torch.repeat_interleave(torch.arange(len(train)), counts)
    moved = torch.arange(len(rows)) - train.start[:-1][client] < wanted[client]
    own = torch.repeat_interleave(torch.arange(len(val)), val.counts())
    every = torch.cat([val.rows, rows[moved]])
    order = torch.argsort(torch.cat([own, client[moved]]), stable=True)
    return (
        from_counts(rows[~moved], counts - wanted),
        from_counts(every[order], val.counts() + wanted),
    )


def with_official_test(data: UnsplitData) -> UnsplitData:
    """All rows for training and validation, and the central test set cut by training labels."""
    if data.central is None:
        raise GlocalError(
            "test='official' takes an official test set, and this data has none: leave it out."
        )
    if data.unit is not None or data.chronological or data.y.dim() != 1 or not data.target.classes:
        raise GlocalError(
            "test='official' goes with one class for each example, and with neither group= nor "
            "chronological=: leave it out."
        )
    if data.attributes is not None or data.rank is not None:
        raise GlocalError("test='official' goes with arrays, not with a table: leave it out.")
    x, y = data.central
    owner = _owners_by_label(data, y)
    n, K = len(data.y), len(data.rows)
    counts = torch.bincount(owner[owner >= 0], minlength=K)
    if not bool(counts.all()):
        name = data.names[int((counts == 0).nonzero()[0])]
        raise GlocalError(
            f"client {shown(name)} has too few rows for a share of the official test set: take "
            "fewer clients, or own test rows."
        )
    mine = [torch.cat([data.rows.of(k), n + (owner == k).nonzero().flatten()]) for k in range(K)]
    labels = torch.cat([data.y, y])
    return replace(
        data,
        x=torch.cat([data.x, x]),
        y=labels,
        y_train=labels,
        rows=from_counts(torch.cat(mine), torch.tensor([len(rows) for rows in mine])),
        part=torch.cat([torch.full((n,), TRAIN), torch.full((len(y),), TEST)]),
        describe={**data.describe, "n": len(labels), "test": "official"},
    )


def _owners_by_label(data: UnsplitData, y: Tensor) -> Tensor:
    """The client of each official test row; −1 where nobody trains on its class.

    Within a class, shares are cut at the nearest row, so that they add up. A client that would go
    without any row gets one of the class that it has most of, from whoever has most of that.
    """
    K = len(data.rows)
    client = torch.repeat_interleave(torch.arange(K), data.rows.counts())
    table = torch.zeros(data.classes, K, dtype=torch.int64)
    table.index_put_((data.y[data.rows.rows], client), torch.ones_like(client), accumulate=True)
    owner = torch.full((len(y),), -1)
    key = keyed(data.seed, "official test")
    for c in range(data.classes):
        rows = (y == c).nonzero().flatten()
        if not len(rows) or not int(table[c].sum()):
            continue
        rows = rows[rng.permutation(rng.fold(key, c), len(rows))]
        borders = (table[c].cumsum(0).double() / int(table[c].sum()) * len(rows)).round().long()
        owner[rows] = torch.repeat_interleave(
            torch.arange(K), borders.diff(prepend=borders[:1] * 0)
        )
    counts = torch.bincount(owner[owner >= 0], minlength=K)
    for k in (counts == 0).nonzero().flatten().tolist():
        of_class = (y == int(table[:, k].argmax())).nonzero().flatten()
        held = torch.bincount(owner[of_class].clamp(min=0), minlength=K)
        richest = int(held.argmax())
        if int(held[richest]) > 1:
            owner[of_class[owner[of_class] == richest][0]] = k
    return owner
