"""Partitions: which client each row of a data set belongs to, by a spec or by given client ids.

A spec is written as a call: ``"iid"``, ``"dirichlet(0.3)"``, ``"by(region)"``. The function of that
name maps labels to the owner of every row, so two clients cannot share a row. A row that belongs to
no client has the owner −1. ``gen`` is seeded by the caller, and nothing else is random.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from glocal.core import rng
from glocal.core.errors import GlocalError, shown, unknown
from glocal.core.spec import Call, parse_call
from glocal.core.validation import check_call, first_line, integer, real
from glocal.data import groups, table
from glocal.data import validation as check
from glocal.data.split import Split, from_owner, keyed

Ints = npt.NDArray[np.int64]

LEAST = 3
"""The examples that a client needs for training, validation and test."""

BLIND = ("iid", "quantity")
"""Partitions that do not look at labels."""

DRAWS = 1000
"""The number of draws after which ``dirichlet`` gives up."""


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
    unit: Tensor | None = None,
) -> Partition:
    """Assign rows with the labels ``y`` to clients, as ``spec`` says.

    ``by`` makes as many clients as its column of the table has values. Where rows have groups
    (``unit``), whole groups are assigned, each by its most frequent label, and numbers of examples
    in a partition are then numbers of groups.
    """
    labels = torch.as_tensor(y).cpu()
    column = column_of(spec)
    name, args, kwargs = parse_call(spec)
    one_label = True
    if column is not None:
        owner, names = by(columns, len(labels), column)
    elif name in PARTITIONS:
        check_call(name, PARTITIONS[name], args, kwargs)
        K = integer(clients, "the number of clients", 1)
        if unit is not None:
            labels, one_label = groups.labels_of(unit, labels)
        _check_sizes(spec, name, labels, K, "examples" if unit is None else "groups")
        gen = np.random.default_rng(rng.seed_of(keyed(seed, f"partition {name}")))
        owner = torch.from_numpy(PARTITIONS[name](labels.numpy(), K, gen, *args, **kwargs))
        owner = owner if unit is None else owner[unit]
        names = tuple(str(k) for k in range(K))
    else:
        raise unknown("partition", name, list_partitions())
    # By the most frequent label of groups with several, more than label shares is partitioned.
    label_shift_only = column is None and (name in BLIND or one_label)
    return _collect(owner, names, label_shift_only=label_shift_only, simulated=column is None)


def natural(ids: Any, rows: int, where: Callable[[int], str] = check.row_index) -> Partition:
    """The partition into given clients, from one id for each row."""
    owner, names = check.owners(ids, rows, where=where)
    return _collect(owner, names, label_shift_only=False, simulated=False)


def _collect(
    owner: Tensor, names: tuple[str, ...], *, label_shift_only: bool, simulated: bool
) -> Partition:
    rows = from_owner(owner, len(names))
    _check_counts(names, rows.counts(), simulated)
    return Partition(
        rows=rows,
        leftovers=(owner < 0).nonzero().flatten(),
        label_shift_only=label_shift_only,
        names=names,
    )


def _check_counts(names: tuple[str, ...], counts: Tensor, simulated: bool) -> None:
    """Raise unless every client can have training, validation and test examples."""
    small = (counts < LEAST).nonzero().flatten().tolist()
    if small:
        n, others = int(counts[small[0]]), len(small) - 1
        more = f" (and {others} client{'s' * (others > 1)} more)" if others else ""
        remedy = "ask for fewer clients"
        if not simulated:
            remedy = f"leave such clients out with min_examples={LEAST}, or merge them"
        raise GlocalError(
            f"client {shown(names[small[0]])}{more} would have an empty split: it has {n} "
            f"example{'' if n == 1 else 's'}, and training, validation and test need one each; "
            f"{remedy}."
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


def _check_sizes(spec: str, name: str, labels: Tensor, clients: int, what: str) -> None:
    if labels.dim() > 1 and name not in BLIND:
        raise GlocalError(
            f"{shown(spec)} needs one label a row, and these are sequences: use iid or quantity."
        )
    if len(labels) < 3 * clients:
        raise GlocalError(
            f"{len(labels)} {what} are too few for {clients} clients, which need 3 each: ask for "
            f"{len(labels) // 3} clients or fewer."
        )


def by(
    columns: Mapping[str, Any] | None, rows: int, /, column: Any
) -> tuple[Tensor, tuple[str, ...]]:
    """Natural clients: one for each value of a column of the table."""
    if columns is None:
        raise GlocalError(f"by({column}) needs a table: give a DataFrame or a dict of columns.")
    if isinstance(columns, table.Table):
        return check.owners(columns.ids(str(column), "clients"), rows, where=columns.where)
    return check.owners(table.column(columns, str(column), "clients"), rows)


def iid(y: Ints, clients: int, gen: np.random.Generator, /) -> Ints:
    """Rows are assigned at random, in equal numbers."""
    return gen.permutation(np.arange(len(y)) % clients)


def shards(y: Ints, clients: int, gen: np.random.Generator, /, s: int = 2) -> Ints:
    """Rows are sorted by label and cut into s·K nearly equal shards, s of them per client.

    McMahan, Moore, Ramage, Hampson, Agüera y Arcas: *Communication-efficient learning of deep
    networks from decentralized data*, AISTATS 2017.
    """
    n, total = len(y), integer(s, "the shards of a client", 1) * clients
    if total > n:
        raise GlocalError(f"{n} examples cannot be cut into {total} shards: ask for fewer.")
    order = gen.permutation(n)
    order = order[np.argsort(y[order], kind="stable")]
    holder = gen.permutation(total) // s
    owner = np.empty(n, np.int64)
    owner[order] = holder[np.arange(n) * total // n]
    return owner


def classes(y: Ints, clients: int, gen: np.random.Generator, /, s: int) -> Ints:
    """At most s classes per client: each class is cut into s·K/C shards, and a client draws s.

    Liang, Liu, Ziyin, Allen, Auerbach, Brent, Salakhutdinov, Morency: *Think locally, act globally:
    federated learning with local and global representations*, 2020.

    A client may draw one class twice. Where C does not divide s·K, classes drawn at random are cut
    into one shard more than the others; with s·K < C, the classes without a shard are left over.
    """
    present, label = np.unique(y, return_inverse=True)
    C = len(present)
    total = integer(s, "the classes of a client", 1, C) * clients
    cuts = np.full(C, total // C)
    cuts[gen.permutation(C)[: total % C]] += 1
    drawn = gen.permutation(np.repeat(np.arange(C), cuts))
    owner = np.full(len(y), -1, np.int64)
    for c in cuts.nonzero()[0]:
        rows = gen.permutation((label == c).nonzero()[0])
        holder = (drawn == c).nonzero()[0] // s
        owner[rows] = holder[np.arange(len(rows)) * cuts[c] // len(rows)]
    return owner


def dirichlet(
    y: Ints, clients: int, gen: np.random.Generator, /, a: float, min: int | None = None
) -> Ints:
    """For each class, the clients' shares of it are drawn from Dirichlet(a, …, a).

    Shares are drawn again until every client has ``min`` examples. Left out, it is 10, or a fifth
    of the mean where that is less; where no draw manages that, the draw whose smallest client is
    largest is kept, if that client has the 3 examples that its splits need.
    """
    alpha = _concentration(a, clients)
    wanted = _fewest(min, len(y), clients)
    present, label, size = np.unique(y, return_inverse=True, return_counts=True)
    ends, smallest = np.empty(0, np.int64), -1
    for _ in range(DRAWS):
        edges = np.cumsum(gen.dirichlet(alpha, size=len(present)), axis=1)
        # Rounded at a random place in each class, or the same clients would lose in every class.
        drawn = np.floor(edges * size[:, None] + gen.random((len(present), 1))).astype(np.int64)
        drawn[:, -1] = size
        least = int(np.diff(drawn, axis=1, prepend=0).sum(0).min())
        if least > smallest:
            ends, smallest = drawn, least
        if smallest >= wanted:
            break
    needed = LEAST if min is None else wanted
    if smallest < needed:
        raise GlocalError(
            f"dirichlet({a:g}) did not give each of {clients} clients {needed} examples in {DRAWS} "
            "draws: take a larger a, fewer clients, or dirichlet-clients."
        )
    owner = np.empty(len(y), np.int64)
    for c in range(len(present)):
        rows = gen.permutation((label == c).nonzero()[0])
        owner[rows] = np.searchsorted(ends[c], np.arange(len(rows)), side="right")
    return owner


def dirichlet_clients(y: Ints, clients: int, gen: np.random.Generator, /, a: float) -> Ints:
    """For each client, its class shares are drawn from Dirichlet(a, …, a); sizes are equal.

    Clients draw their examples one after the other, without replacement. Where a class has run out,
    the client draws again from its shares of the classes that are left or, if it has no share in
    any of those, in proportion to what is left. So the shares of the last clients are nearer to
    those of the leftover examples. Where K does not divide n, the first clients have one more.
    """
    present, label = np.unique(y, return_inverse=True)
    alpha = _concentration(a, len(present))
    # Classes one after the other, each permuted; `taken` says how far into each we are.
    order = gen.permutation(len(y))
    order = order[np.argsort(label[order], kind="stable")]
    size = np.bincount(label)
    begin = np.cumsum(size) - size
    taken = np.zeros_like(size)
    owner = np.empty(len(y), np.int64)
    for k in range(clients):
        q = gen.dirichlet(alpha)
        need = len(y) // clients + (k < len(y) % clients)
        while need:
            left = size - taken
            p = np.where(left > 0, q, 0.0)
            p = p if p.sum() > 0 else left.astype(np.float64)
            take = np.minimum(gen.multinomial(need, p / p.sum()), left)
            for c in take.nonzero()[0]:
                first = begin[c] + taken[c]
                owner[order[first : first + take[c]]] = k
            taken = taken + take
            need -= int(take.sum())
    return owner


def quantity(
    y: Ints, clients: int, gen: np.random.Generator, /, a: float, min: int | None = None
) -> Ints:
    """Clients differ in size alone, with shares of all rows drawn from Dirichlet(a, …, a).

    Every client first gets ``min`` examples (as for ``dirichlet``); the shares are of the rest.
    """
    alpha = _concentration(a, clients)
    n, fewest = len(y), _fewest(min, len(y), clients)
    edges = np.cumsum(gen.dirichlet(alpha))
    ends = np.floor(edges * (n - fewest * clients) + 0.5).astype(np.int64)
    ends += fewest * np.arange(1, clients + 1)
    return gen.permutation(np.searchsorted(ends, np.arange(n), side="right"))


def _concentration(a: float, length: int) -> npt.NDArray[np.float64]:
    """The parameter (a, …, a) of a Dirichlet distribution."""
    if real(a, "a") <= 0:
        raise GlocalError(f"the a of a partition such as dirichlet(a) must be above 0, not {a:g}.")
    if a > 1e6:
        raise GlocalError(f"a = {a:g} is past 1e6, where all shares are equal: use iid.")
    return np.full(length, float(a))


def _fewest(fewest: int | None, n: int, clients: int) -> int:
    """The value of ``min``, or its default."""
    if fewest is None:
        return max(LEAST, min(10, n // (5 * clients)))
    return integer(fewest, "min", LEAST, n // clients)


PARTITIONS: dict[str, Callable[..., Ints]] = {
    "iid": iid,
    "shards": shards,
    "classes": classes,
    "dirichlet": dirichlet,
    "dirichlet-clients": dirichlet_clients,
    "quantity": quantity,
}
