"""A federation: K clients, each with training, validation and test data of its own."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal.core.errors import GlocalError, shown, unknown
from glocal.core.progress import note
from glocal.core.target import Target
from glocal.core.validation import LARGEST, integer
from glocal.core.validation import check as check_kind
from glocal.data import given_split, own_table, quantities, small_clients, suggested_groups, table
from glocal.data import labels as label_column
from glocal.data import validation as check
from glocal.data.attributes import Protected, attributes_of, check_apart, columns_of, reports
from glocal.data.client_data import ClientData, Federation, fold_of, rows_of
from glocal.data.groups import check_clients, units
from glocal.data.partition import BLIND, PARTITIONS, Partition, column_of, make, natural
from glocal.data.preprocessing.fitting import MODES
from glocal.data.preprocessing.report import ColumnReport
from glocal.data.split import UnsplitData
from glocal.data.transforms import Transform, apply

__all__ = ["ClientData", "Federation", "federation"]

TESTS = ("own", "official")
"""Whose test examples clients are evaluated on."""


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
    task: str = quantities.AUTO,
    min_examples: int = 0,
    protected: Protected = (),
    chronological: bool = False,
    parts: Any = None,
    test: str = "own",
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
        task: ``"classification"``, ``"regression"`` or ``"counts"``: what ``y`` is. By default
            labels are classes, and numbers that may be a quantity are an error. Numbers and counts
            are standardised with the statistics of all clients' training rows
            (:mod:`glocal.core.target`).
        min_examples: clients of the data's own with fewer examples than this (a group is one) are
            left out, and a note names them.
        protected: columns of a table that are protected attributes (sex, origin) and no features;
            of arrays, a value for each row by the attribute's name, as in ``{"sex": values}``.
        chronological: whether rows are in the order of time. Then each client trains on the first
            of its rows, validates on the next and is tested on the last, in every repeat.
        parts: ``train``, ``val`` or ``test`` for each row, or a table's column of them: splits that
            the data brings (:mod:`glocal.data.given_split`).
        test: ``"own"``, or ``"official"``: clients train on all of their rows, and are tested on
            their shares of the central test set, which is cut by their training labels.
    """
    if test not in TESTS:
        raise unknown("test", str(test), TESTS)
    if parts is not None and (chronological or group is not None or test != "own"):
        raise GlocalError(
            "parts= says which rows are tested on, so chronological=, group= and test= cannot: "
            "leave one of them out."
        )
    check_kind("pooled", pooled, bool | None)
    check_kind("chronological", chronological, bool)
    if chronological and group is not None:
        raise GlocalError(
            "chronological= splits each client's rows at two points in time, and group= keeps rows "
            "together whenever they are: leave one of them out."
        )
    quantities.check_task(task)
    shares = check.shares(split)
    seed = integer(seed, "the seed", 0, LARGEST - 1)
    columns = table.as_table(x) if table.is_table(x) else None
    used = [c for c in (y, clients, group, parts, column_of(partition)) if isinstance(c, str)]
    apart = columns_of(protected, columns)
    check_apart(apart, used=used, features=features)
    _check_table_options(columns, (y, clients, group, parts), drop, features, preprocessing)
    if y is None:
        raise GlocalError("y is missing: give one label for each row, or the label column's name.")
    where: Callable[[int], str] = check.row_index
    extra: dict[str, Any] = {}
    if integer(min_examples, "min_examples", 0):
        rows, left_out = _large_clients(columns, clients, group, partition, min_examples)
        where = small_clients.named(rows)
        x = check.features(x)[rows] if columns is None else x
        columns = None if columns is None else columns.with_rows(rows)
        given = (y, clients, group, parts)
        y, clients, group, parts = (small_clients.at(rows, each) for each in given)
        if isinstance(protected, Mapping):
            protected = {name: small_clients.at(rows, each) for name, each in protected.items()}
        if left_out:
            extra["left_out_clients"] = left_out
            note(small_clients.sentence(left_out, min_examples))
    others: list[ColumnReport] = []
    raw, codes = None, None
    numeric = task in ("regression", "counts")
    if numeric:
        _check_no_classes(classes, partition, pooled, transforms)
    if columns is None:
        inputs = check.features(x)
        labels, classes, codes = _labels(y, classes, task, where)
    else:
        where = columns.where
        if columns.notes:
            extra["read"] = list(columns.notes)
        raw = own_table.raw_features(columns, [*used, *apart], drop, features)
        inputs = raw.x
        if isinstance(y, str) and numeric:
            labels, about = quantities.of_column(columns, y, task)
            classes = 1
            others.append(about)
        elif isinstance(y, str):
            labels, classes, codes, about = label_column.of_table(columns, y, classes, task)
            others.append(about)
            if codes is not None and about.was == "numbers":
                extra["integer_labels"] = True  # what they are called again in predictions
        else:
            labels, classes, codes = _labels(y, classes, task, where)
        raw = own_table.with_leaks(raw, labels, classes=not numeric)
        others += own_table.id_columns(columns, column_of(partition) or clients, group)
        if isinstance(clients, str):
            extra["client_column"] = clients
            clients = columns.ids(clients, "clients")
        group = columns.ids(group, "groups") if isinstance(group, str) else group
        if isinstance(parts, str):
            others.append(ColumnReport(parts, "words", "the splits"))
            parts = columns.ids(parts, "parts")
    if (
        not numeric
        and labels.shape[1:] == (1,)
        and (inputs.is_floating_point() or inputs.shape != labels.shape)
    ):
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
        central = check.central(central, inputs, None if numeric else classes)
        extra["central"] = len(central[0])
    attributes = attributes_of(protected, apart, columns, len(labels), where)
    if attributes is not None:
        extra["protected"] = attributes.describe()
        others += reports(attributes)
    unit, groups = (None, ()) if group is None else units(group, len(labels), where)
    if unit is not None:
        extra["groups"] = len(groups)
    if pooled is not None:
        extra["pooled"] = pooled
    if numeric:
        extra["task"] = task
    if chronological:
        extra["chronological"] = True
    keys = None if raw is None else own_table.row_keys(inputs, labels, unit, attributes)
    order = None if keys is None else torch.from_numpy(np.argsort(keys, kind="stable"))
    by_label = torch.zeros_like(labels, dtype=torch.int64) if numeric else labels
    assignment = _assign(by_label, clients, partition, seed, columns, unit, order)
    if unit is not None:
        check_clients(unit, assignment.rows, groups, assignment.names)
    part = None
    if parts is not None:
        part = given_split.codes(parts, len(labels), where)
        given_split.check_parts(part, assignment.rows, assignment.names)
        extra["parts"] = True
    data = UnsplitData(
        x=inputs,
        y=labels,
        y_train=labels,
        classes=classes,
        names=assignment.names,
        rows=assignment.rows,
        shares=shares,
        seed=seed,
        label_shift_only=assignment.label_shift_only and not numeric,
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
        attributes=attributes,
        rank=None if keys is None else own_table.ranks(keys, assignment.rows),
        target=Target(task) if numeric else Target(),
        chronological=chronological,
        part=part,
    )
    if test == "official":
        data = given_split.with_official_test(data)
    data = apply(data, transforms)
    if raw is not None:
        by_client = preprocessing == "client"
        train, *_ = rows_of(data, 0)
        data = own_table.with_layout(
            data, train.rows, raw, others, scale=scale, by_client=by_client
        )
        about_features = {"scaled": scale} | ({"preprocessing": "client"} if by_client else {})
        data = replace(data, describe={**data.describe, **about_features})
    fed = fold_of(data, 0)
    for row in fed.columns:
        for warning in row.warnings:
            note(warning)
    if unit is None and test == "own":
        candidates = (
            () if raw is None else [column.name for column in raw.columns if not column.dates]
        )
        values = {} if columns is None else columns.with_columns(candidates)
        suggested_groups.mention(inputs, fed.train, fed.test, values)
    return fed


def _large_clients(
    columns: table.Table | None, clients: Any, group: Any, partition: str | None, least: int
) -> tuple[list[int], dict[str, int]]:
    """The rows of clients that have enough examples, and how many each of the others has."""
    ids = clients if partition is None else column_of(partition)
    if ids is None or isinstance(ids, numbers.Integral):
        raise GlocalError(
            "min_examples= leaves out clients of the data's own, and these are simulated: leave "
            "it out."
        )
    if columns is None:
        return small_clients.kept_rows(ids, group, least)
    ids = columns.ids(ids, "clients") if isinstance(ids, str) else ids
    group = columns.ids(group, "groups") if isinstance(group, str) else group
    return small_clients.kept_rows(ids, group, least, columns.where)


def _labels(
    y: Any, classes: int | None, task: str, where: Callable[[int], str]
) -> tuple[Tensor, int, dict[str, int] | None]:
    """Labels that are no column of a table: of an array, integers are classes."""
    if task in ("regression", "counts"):
        return quantities.of_array(y, task, where), 1, None
    if task == quantities.AUTO and classes is None:
        array = check.as_array(y, "y")
        if array.dtype.kind == "f" and array.size:
            quantities.refuse_doubtful(array, "y")
    return check.labels(y, classes, where)


def _check_no_classes(
    classes: int | None, partition: str | None, pooled: bool | None, transforms: Sequence[Any]
) -> None:
    """Refuse, where labels are numbers, what needs classes."""
    if classes is not None:
        raise GlocalError("classes= goes with classification: leave it out.")
    if pooled:
        raise GlocalError("pooled= goes with classification: leave it out.")
    if partition is not None and column_of(partition) is None:
        name = partition.partition("(")[0].strip()
        if name in PARTITIONS and name not in BLIND:
            raise GlocalError(
                f"{shown(partition)} partitions by classes, and labels are numbers here: use iid, "
                "quantity or by."
            )
    for transform in transforms:
        if "noise" in str(getattr(transform, "spec", transform)).partition("(")[0]:
            raise GlocalError(f"{shown(str(transform))} changes classes, and labels are numbers.")


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
    if preprocessing != MODES[0]:
        raise GlocalError(
            "preprocessing= prepares the columns of a table, and this data is none: leave it out."
        )


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
