"""A user's table on its way to a federation: which columns are features, and an order of rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal.core.errors import GlocalError, shown
from glocal.data.attributes import Attributes
from glocal.data.partition import Partition
from glocal.data.preprocessing import fitting
from glocal.data.preprocessing.doubts import case_warnings, gives_label_away, zero_warnings
from glocal.data.preprocessing.kinds import RawColumn, recognised
from glocal.data.preprocessing.report import ColumnReport
from glocal.data.split import Split, UnsplitData
from glocal.data.table import Table, named_columns
from glocal.data.validation import Array

NO_VALUE = np.uint64(0x7FF8DEADBEEF0001)
MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, eq=False)
class RawFeatures:
    """The columns that may become features, as numbers, and the others."""

    columns: tuple[RawColumn, ...]
    """In the order of their names, so that the order of the table's columns does not matter."""
    x: Tensor
    """Their values [n, columns] in float64."""
    asked: tuple[str, ...]
    """Those that were named one by one."""
    dropped: tuple[str, ...]


def raw_features(
    table: Table, used: Iterable[str], drop: Sequence[str], features: Sequence[str]
) -> RawFeatures:
    """The columns of a table but those ``used`` for labels and the like, as numbers."""
    others = [name for name in dict.fromkeys(used) if name in table]
    dropped = named_columns(drop, table, "drop")
    asked = named_columns(features, table, "features")
    for name in asked:
        if name in others or name in dropped:
            what = "drop= names, too" if name in dropped else "holds labels, clients or groups"
            raise GlocalError(f"features= names {shown(name)}, which {what}: leave it out there.")
    for name in dropped:
        if name in others:
            raise GlocalError(
                f"drop= names {shown(name)}, which holds labels, clients or groups and is no "
                "feature: leave it out there."
            )
    left = [c for c in asked or table if c not in others and c not in dropped]
    columns = tuple(recognised(table, name) for name in sorted(left))
    values = [column.values for column in columns]
    x = (
        torch.from_numpy(np.stack(values, axis=1))
        if values
        else torch.empty(table.rows, 0).double()
    )
    unasked = [c for c in table if c not in others and c not in left and c not in dropped]
    return RawFeatures(columns, x, tuple(asked), (*dropped, *unasked))


def with_leaks(raw: RawFeatures, labels: Tensor, *, classes: bool) -> RawFeatures:
    """The same with a warning where a column gives the label away."""
    if labels.dim() != 1 or len(labels) != len(raw.x):
        return raw
    columns = []
    for column in raw.columns:
        slips = gives_label_away(column.values, labels.numpy(), classes=classes)
        if slips is not None:
            but = f", but for {slips} row{'s' * (slips > 1)}" if slips else ""
            warning = (
                f"column {shown(column.name)} gives the label away"
                + (f" (each class has a value of its own there{but})" if classes else "")
                + ": leave it out (drop=) unless it is known before the label is."
            )
            column = replace(column, warnings=(*column.warnings, warning))
        columns.append(column)
    return replace(raw, columns=tuple(columns))


def row_keys(
    x: Tensor, y: Tensor, unit: Tensor | None, attributes: Attributes | None = None
) -> Array:
    """A hash of each row's features, label, group and protected attributes.

    Draws that are made in the order of these do not depend on how a table is sorted.
    """
    columns: list[Array] = [*x.numpy().T, *y.double().reshape(len(y), -1).numpy().T]
    if unit is not None:
        columns.append(unit.double().numpy())
    if attributes is not None:
        columns += [*attributes.codes.double().numpy().T]
    mixed = np.full(len(y), MIX)
    for column in columns:
        bits = np.ascontiguousarray(column + 0.0).view(np.uint64)  # −0 is 0
        bits = np.where(np.isnan(column), NO_VALUE, bits)
        mixed = (mixed ^ bits) * MIX
        mixed ^= mixed >> np.uint64(32)
        mixed *= MIX
        mixed ^= mixed >> np.uint64(29)
    return mixed


def ranks(keys: Array, clients: Split) -> Tensor:
    """The position of each row in the order of keys; equal rows are in that of their clients."""
    owner = np.full(len(keys), -1)
    owner[clients.rows.numpy()] = np.repeat(np.arange(len(clients)), clients.counts().numpy())
    return torch.argsort(torch.from_numpy(np.lexsort((owner, keys))))


def id_columns(table: Table, clients: Any, group: Any) -> list[ColumnReport]:
    """What became of the columns of clients and groups, where they are named."""
    reports = []
    for name, became in ((clients, "the clients"), (group, "the groups")):
        if isinstance(name, str):
            ids = table.ids(name, became).tolist()
            warnings = (*case_warnings(name, ids), *zero_warnings(name, ids))
            reports.append(ColumnReport(name, "ids", became, warnings=warnings))
    return reports


def reordered(partition: Partition, order: Tensor | None) -> Partition:
    """The same partition, with each client's rows in this order."""
    if order is None:
        return partition
    rank = torch.argsort(order)
    client = torch.repeat_interleave(torch.arange(len(partition.rows)), partition.rows.counts())
    by_rank = torch.argsort(rank[partition.rows.rows])
    by_client = by_rank[torch.argsort(client[by_rank], stable=True)]
    return replace(partition, rows=replace(partition.rows, rows=partition.rows.rows[by_client]))


def with_layout(
    data: UnsplitData,
    train: Tensor,
    raw: RawFeatures,
    others: Sequence[ColumnReport],
    *,
    scale: bool,
    by_client: bool,
) -> UnsplitData:
    """The data with the layout of its features, chosen from training rows, and the report."""
    layout, report = fitting.choose(
        *(raw.columns, data.x, train), wanted=raw.asked, scale=scale, by_client=by_client
    )
    left_out = [ColumnReport(name, "", "left out: not asked for") for name in raw.dropped]
    return replace(data, layout=layout, columns=(*others, *report, *left_out))
