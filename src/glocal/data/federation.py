"""A federation: K clients, each with training, validation and test data of its own."""

from __future__ import annotations

import hashlib
import numbers
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal.core.errors import GlocalError, shown
from glocal.core.validation import LARGEST, integer
from glocal.core.validation import check as check_kind
from glocal.data import labels as label_column
from glocal.data import own_table, suggested_groups, table
from glocal.data import validation as check
from glocal.data.group_split import split_groups
from glocal.data.groups import check_clients, units
from glocal.data.partition import Partition, column_of, make, natural
from glocal.data.preprocessing.fitted import Preprocessing
from glocal.data.preprocessing.fitting import MODES
from glocal.data.preprocessing.report import ColumnReport
from glocal.data.split import Split, UnsplitData, split_clients
from glocal.data.transforms import Transform, apply

Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class ClientData:
    """One client's data; each split is ``(x, y)``."""

    name: str
    train: Pair
    val: Pair
    test: Pair


@dataclass(frozen=True, eq=False)
class Federation:
    """The data of K clients. All rows are in one tensor, and each split assigns rows to clients."""

    x: Tensor
    """Features [n, …] in float32, or token ids in int64."""
    y: Tensor
    """Labels [n], or [n, t] for sequences: true ones, but for validation rows with noisy labels."""
    y_train: Tensor
    """The labels that training sees: ``y``, but for label noise in training and validation rows."""
    classes: int
    names: tuple[str, ...]
    train: Split
    val: Split
    test: Split
    label_shift_only: bool
    """Whether clients differ only in label shares or size: then the pooled test set is valid."""
    describe: dict[str, Any]
    """Where the data came from and how it was partitioned and split; written to files as JSON."""
    unsplit: UnsplitData | None = None
    """The data from which other folds are made; none if the splits were given."""
    central: Pair | None = None
    """A test set ``(x, y)`` that belongs to no client, such as MNIST's official one."""
    unit: Tensor | None = None
    """The group [n] of each row, 0, 1, …: rows that belong together, which a split keeps together
    and an evaluation counts as one; none: every row is a unit of its own."""
    pooled: bool | None = None
    """What the user says about ``label_shift_only``; it goes before what the data says."""
    preprocessing: Preprocessing | None = field(default=None, repr=False)
    """How rows of the table became ``x``, fitted on the training rows; none: it was no table."""
    columns: tuple[ColumnReport, ...] = field(default=(), repr=False)
    """What became of each column of the table."""

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, client: int) -> ClientData:
        k = operator.index(client)
        k = k + len(self) if k < 0 else k
        if not 0 <= k < len(self):
            raise IndexError(f"client {client} of a federation of {len(self)}")
        train, val, test = (s.of(k) for s in (self.train, self.val, self.test))
        return ClientData(
            self.names[k],
            (self.x[train], self.y_train[train]),
            (self.x[val], self.y[val]),
            (self.x[test], self.y[test]),
        )

    def __iter__(self) -> Iterator[ClientData]:
        return (self[k] for k in range(len(self)))

    def to(self, device: torch.device | str) -> Federation:
        """The same federation on another device."""
        parts = ("x", "y", "y_train", "train", "val", "test", "unit")
        held = {name: getattr(self, name) for name in parts}
        moved = {name: part.to(device) for name, part in held.items() if part is not None}
        central = self.central and (self.central[0].to(device), self.central[1].to(device))
        return replace(self, **moved, central=central)

    def fold(self, r: int) -> Federation:
        """The same clients with the ``r``-th split; ``federation`` and ``load`` give fold 0.

        The test sets of the first ⌊1 / test share⌋ folds have no example in common. A federation
        that came with its splits has no others: its repeats differ in training alone.
        """
        if self.unsplit is None:
            integer(r, "the fold", 0)
            return self
        # What is the same in every fold is not copied to the device again.
        fold = replace(_split(self.unsplit, integer(r, "the fold", 0)), central=self.central)
        if self.unsplit.layout is None:
            fold = replace(fold, x=self.x)
        return fold.to(self.x.device)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the data and its splits: equal for federations that train the same way.

        The central test set is not part of it, because no client trains on it.
        """
        digest = hashlib.sha256()
        tensors = [self.x, self.y, self.y_train]
        tensors += [t for s in (self.train, self.val, self.test) for t in (s.rows, s.start)]
        for tensor in tensors:
            array = np.ascontiguousarray(tensor.cpu().numpy())
            digest.update(f"{array.dtype.str} {array.shape} ".encode())
            digest.update(array.data)
        return digest.hexdigest()


def federation(
    x: Any,
    y: Any = None,
    clients: Any = None,
    *,
    split: Sequence[float] = (0.7, 0.1, 0.2),
    seed: int = 0,
    partition: str | None = None,
    classes: int | None = None,
    name: str = "own data",
    transforms: Sequence[str | Transform] = (),
    scale: bool = True,
    central: tuple[Any, Any] | None = None,
    group: Any = None,
    pooled: bool | None = None,
    drop: Sequence[str] = (),
    features: Sequence[str] = (),
    preprocessing: str = "federated",
) -> Federation:
    """A federation from your own data.

    Pass either arrays (tensors, numpy arrays, lists), with features ``x`` and one label per row in
    ``y``; or a table (a DataFrame or a dict of columns) as ``x``, with the name of the label column
    as ``y`` and that of the client column as ``clients``. All other columns are features: see
    :class:`~glocal.data.preprocessing.fitted.Preprocessing`, and ``columns`` of what is returned
    for what became of each. The order of a table's rows and columns changes nothing.

    Args:
        x: features; integers (int16 and wider) are token ids, so give floats for features.
        y: labels 0, 1, …, or text, which is numbered in order (see ``describe["labels"]``); a
            column [n, 1] works like [n].
        clients: one id for each row; or how many clients, with a ``partition``.
        split: the shares of training, validation and test, of every client.
        seed: of the partition, the splits and the transforms.
        partition: how rows are assigned to clients, such as ``"dirichlet(0.3)"`` or, for a table,
            ``"by(region)"``.
        classes: how many there are, if not all are in the data.
        name: for records.
        transforms: of chosen clients, such as ``"rotate(90, clients=5)"``.
        scale: whether a table's numbers are standardised with their mean and standard deviation
            over training rows.
        central: features and labels of a test set that belongs to no client (not with a table).
        group: one id for each row, or a table's column of them, where rows belong together (the
            visits of a patient, the frames of a film). A group is partitioned and split as a whole
            and counts as one unit in every verdict; it is never a feature.
        pooled: True says that clients differ in their label shares only, so that each can be
            evaluated on all clients' test examples (which a test then checks); False that they are
            not. By default that is so for partitions by label, and not for real clients.
        drop: columns of a table that are no features.
        features: the columns of a table that are; by default all that are nothing else.
        preprocessing: ``"federated"``: a table's means, medians and most frequent words are those
            of all clients' training rows, from sums and counts that clients could send;
            ``"client"``: each client's own, and clients share only which words there are.
    """
    check_kind("pooled", pooled, bool | None)
    shares = check.shares(split)
    seed = integer(seed, "the seed", 0, LARGEST - 1)
    columns = table.as_table(x) if table.is_table(x) else None
    used = [c for c in (y, clients, group, column_of(partition)) if isinstance(c, str)]
    _check_table_options(columns, (y, clients, group), drop, features, preprocessing)
    if y is None:
        raise GlocalError("y is missing: give one label for each row, or the label column's name.")
    where, extra = check.row_index, dict[str, Any]()
    others: list[ColumnReport] = []
    raw, codes = None, None
    if columns is None:
        inputs = check.features(x)
        labels, classes, codes = check.labels(y, classes)
    else:
        where = columns.where
        if columns.notes:
            extra["read"] = list(columns.notes)
        raw = own_table.raw_features(columns, used, drop, features)
        inputs = raw.x
        if isinstance(y, str):
            labels, classes, codes, about = label_column.of_table(columns, y, classes)
            others.append(about)
        else:
            labels, classes, codes = check.labels(y, classes, where)
        others += own_table.id_columns(column_of(partition) or clients, group)
        if isinstance(clients, str):
            extra["client_column"] = clients
            clients = columns.ids(clients, "clients")
        group = columns.ids(group, "groups") if isinstance(group, str) else group
    if labels.shape[1:] == (1,) and (inputs.is_floating_point() or inputs.shape != labels.shape):
        labels = labels[:, 0]  # a column, unless it is a sequence of one label for one token
    if codes is not None:
        extra["labels"] = codes
    if len(inputs) != len(labels):
        raise GlocalError(
            f"x has {len(inputs)} rows and y has {len(labels)}: give one label for each row."
        )
    if central is not None:
        if columns is not None or codes is not None:
            raise GlocalError("central= goes with arrays and labels in numbers, not with a table.")
        central = check.central(central, inputs, classes)
        extra["central"] = len(central[0])
    unit, groups = (None, ()) if group is None else units(group, len(labels), where)
    if unit is not None:
        extra["groups"] = len(groups)
    if pooled is not None:
        extra["pooled"] = pooled
    order = None if raw is None else own_table.canonical_order(inputs, labels, unit)
    assignment = _assign(labels, clients, partition, seed, columns, unit, order)
    if unit is not None:
        check_clients(unit, assignment.rows, groups, assignment.names)
    data = UnsplitData(
        x=inputs,
        y=labels,
        y_train=labels,
        classes=classes,
        names=assignment.names,
        rows=assignment.rows,
        shares=shares,
        seed=seed,
        label_shift_only=assignment.label_shift_only,
        describe={
            "data": name,
            "n": len(labels),
            "classes": classes,
            "clients": len(assignment.names),
            "partition": partition or "own ids",
            "leftovers": len(assignment.leftovers),
            "split": list(shares),
            "seed": seed,
            "transforms": [],
            **extra,
        },
        central=central,
        unit=unit,
        pooled=pooled,
        rank=None if order is None else torch.argsort(order),
    )
    data = apply(data, transforms)
    if raw is not None:
        by_client = preprocessing == "client"
        train, *_ = _rows_of(data, 0)
        data = own_table.with_layout(
            data, train.rows, raw, others, scale=scale, by_client=by_client
        )
        about_features = {"scaled": scale} | ({"preprocessing": "client"} if by_client else {})
        data = replace(data, describe={**data.describe, **about_features})
    fed = _split(data, 0)
    for row in fed.columns:
        for warning in row.warnings:
            suggested_groups.note(warning)
    if unit is None:
        values = (
            {}
            if raw is None or columns is None
            else columns.with_columns(column.name for column in raw.columns)
        )
        suggested_groups.mention(inputs, fed.train, fed.test, values)
    return fed


def _check_table_options(
    columns: table.Table | None,
    named: Sequence[Any],
    drop: Sequence[str],
    features: Sequence[str],
    preprocessing: str,
) -> None:
    """Refuse names of columns where there is no table."""
    if preprocessing not in MODES:
        raise GlocalError(
            f"preprocessing={shown(preprocessing)} should be 'federated' (statistics of all "
            "clients) or 'client' (each client's own)."
        )
    if columns is not None:
        return
    if any(isinstance(c, str) for c in named):
        raise GlocalError(
            "y, clients or group names a column, but x is not a table: give the values."
        )
    for option, given in (("drop", drop), ("features", features)):
        if given:
            raise GlocalError(f"{option}= names columns, but x is not a table: leave it out.")


def _assign(
    y: Tensor,
    clients: Any,
    spec: str | None,
    seed: int,
    columns: table.Table | None,
    unit: Tensor | None,
    order: Tensor | None,
) -> Partition:
    """The rows of each client, by the ids given or as the partition says.

    Rows of a table are drawn, and listed, in an order that does not depend on the table's.
    """
    count = isinstance(clients, numbers.Integral)
    if spec is not None:
        if isinstance(clients, Iterable):
            raise GlocalError("give one id for each row in clients=, or a partition, not both.")
        if order is None or column_of(spec) is not None:
            return own_table.reordered(make(spec, y, clients, seed, columns, unit), order)
        made = make(spec, y[order], clients, seed, columns, None if unit is None else unit[order])
        return replace(
            made,
            rows=replace(made.rows, rows=order[made.rows.rows]),
            leftovers=order[made.leftovers],
        )
    if clients is None or count:
        raise GlocalError(
            "the clients of the rows are missing: give one id for each row in clients=, or a "
            'number of clients and a partition such as "dirichlet(0.3)".'
        )
    where = check.row_index if columns is None else columns.where
    return own_table.reordered(natural(clients, len(y), where), order)


def _rows_of(data: UnsplitData, fold: int) -> tuple[Split, Split, Split]:
    """The training, validation and test rows of a fold."""
    return (split_clients if data.unit is None else split_groups)(data, fold)


def _split(data: UnsplitData, fold: int) -> Federation:
    """One fold of the data."""
    train, val, test = _rows_of(data, fold)
    y, y_train = data.y, data.y.clone()
    # Who trains on validation rows, too, once everything is chosen, meets the same noise there.
    for rows in (train.rows, val.rows):
        y_train[rows] = data.y_train[rows]
    if data.y_val is not None:
        y = y.clone()
        y[val.rows] = data.y_val[val.rows]
    x, about, fitted = data.x, data.describe, None
    if data.layout is not None:
        fitted = data.layout.fit(data.x, train, data.names)
        x = data.layout.transform(data.x, fitted, data.rows)
        about = {**about, "features": fitted.features, "categories": fitted.categories}
    return Federation(
        x=x,
        y=y,
        y_train=y_train,
        classes=data.classes,
        names=data.names,
        train=train,
        val=val,
        test=test,
        label_shift_only=data.label_shift_only,
        describe={**about, "fold": fold},
        unsplit=data,
        central=data.central,
        unit=data.unit,
        pooled=data.pooled,
        preprocessing=fitted,
        columns=data.columns,
    )
