"""Partitions: which client each row of a data set belongs to, by a spec or by given client ids.

A spec is written as a call: ``"iid"``, ``"dirichlet(0.3)"``, ``"by(region)"``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal.core import rng
from glocal.core.errors import GlocalError, shown, unknown
from glocal.core.spec import Call, parse_call
from glocal.core.validation import check_call, first_line, integer
from glocal.data import table
from glocal.data import validation as check
from glocal.data.partitioners import PARTITIONS
from glocal.data.split import Split, from_owner, keyed


@dataclass(frozen=True, eq=False)
class Partition:
    """The rows of each client, ascending, and the rows that belong to none."""

    rows: Split
    leftovers: Tensor
    label_shift_only: bool
    """Whether clients differ only in label shares or size: then the pooled test set is valid."""
    names: tuple[str, ...]


def make(
    spec: str,
    y: Any,
    clients: int | None,
    seed: int,
    columns: Mapping[str, Any] | None = None,
) -> Partition:
    """Assign rows with the labels ``y`` to clients, as ``spec`` says.

    ``by`` makes as many clients as its column of the table has values.
    """
    labels = torch.as_tensor(y).cpu()
    column = column_of(spec)
    name, args, kwargs = parse_call(spec)
    if column is not None:
        owner, names = by(columns, len(labels), column)
    elif name in PARTITIONS:
        check_call(name, PARTITIONS[name], args, kwargs)
        K = integer(clients, "the number of clients", 1)
        _check_sizes(spec, name, labels, K)
        gen = np.random.default_rng(rng.seed_of(keyed(seed, f"partition {name}")))
        owner = torch.from_numpy(PARTITIONS[name](labels.numpy(), K, gen, *args, **kwargs))
        names = tuple(str(k) for k in range(K))
    else:
        raise unknown("partition", name, list_partitions())
    return _collect(owner, names, label_shift_only=column is None)


def natural(ids: Any, rows: int) -> Partition:
    """The partition into given clients, from one id for each row."""
    return _collect(*check.owners(ids, rows), label_shift_only=False)


def _collect(owner: Tensor, names: tuple[str, ...], label_shift_only: bool) -> Partition:
    rows = from_owner(owner, len(names))
    _check_counts(names, rows.counts())
    return Partition(
        rows=rows,
        leftovers=(owner < 0).nonzero().flatten(),
        label_shift_only=label_shift_only,
        names=names,
    )


def _check_counts(names: tuple[str, ...], counts: Tensor) -> None:
    """Raise unless every client can have training, validation and test examples."""
    small = (counts < 3).nonzero().flatten().tolist()
    if small:
        n = int(counts[small[0]])
        more = f" (and {len(small) - 1} clients more)" if len(small) > 1 else ""
        raise GlocalError(
            f"client {shown(names[small[0]])}{more} would have an empty split: it has {n} "
            f"example{'' if n == 1 else 's'}, and training, validation and test need one each; "
            "leave such clients out, merge them, or use fewer clients."
        )


def list_partitions() -> dict[str, str]:
    """List every partition by name, with a line about it."""
    return {name: first_line(f) for name, f in [*PARTITIONS.items(), ("by", by)]}


def column_of(spec: str | None) -> str | None:
    """The column of a partition ``by(column)``, else None."""
    if spec is None:
        return None
    if isinstance(spec, str) and not spec.strip():
        raise GlocalError(
            "the partition is empty: leave it out, or name one, such as 'iid' or 'dirichlet(0.3)'."
        )
    name, args, kwargs = parse_call(spec)
    if name != "by":
        return None
    check_call(name, by, args, kwargs)
    (column,) = [*args, *kwargs.values()]
    if isinstance(column, Call):
        raise GlocalError(f"{shown(spec)} names no column: write by(column), or by('its name').")
    return str(column)


def _check_sizes(spec: str, name: str, labels: Tensor, clients: int) -> None:
    if labels.dim() > 1 and name not in ("iid", "quantity"):
        raise GlocalError(
            f"{shown(spec)} needs one label a row, and these are sequences: use iid or quantity."
        )
    if len(labels) < 3 * clients:
        raise GlocalError(
            f"{len(labels)} examples are too few for {clients} clients, which need 3 each: ask for "
            f"{len(labels) // 3} clients or fewer."
        )


def by(
    columns: Mapping[str, Any] | None, rows: int, /, column: Any
) -> tuple[Tensor, tuple[str, ...]]:
    """Natural clients: one for each value of a column of the table."""
    if columns is None:
        raise GlocalError(f"by({column}) needs a table: give a DataFrame or a dict of columns.")
    return check.owners(table.column(columns, str(column), "clients"), rows)
