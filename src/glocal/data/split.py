"""Clients' data before it is split, and how it is split into training, validation and test.

Each client's examples are laid on a circle in a *stratified systematic* order. The ``n_c`` examples
of a class are permuted, and the ``j``-th gets the position ``(j + u_c) / n_c``, with one random
offset ``u_c`` a class; sorting all of them by position mixes the classes so evenly that every arc
of the circle has nearly the client's own class shares. Test, validation and training are three arcs
that follow each other.

Fold ``r`` begins ``r`` test arcs further on, so the test sets of the first ``⌊1 / test share⌋``
folds have no example in common, and repeats pool distinct test examples. Once a client's circle is
used up its next fold begins a new cycle, with a new permutation.

Where rows are in the order of time and are to be split in it, training comes before validation and
that before test, and all folds are the same: repeats then differ in training alone.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from glocal.core import rng
from glocal.core.target import Target

if TYPE_CHECKING:
    from glocal.data.attributes import Attributes
    from glocal.data.preprocessing.fitting import Layout
    from glocal.data.preprocessing.report import ColumnReport

Shares = tuple[float, float, float]
"""The shares of training, validation and test."""


@dataclass(frozen=True, eq=False)
class Split:
    """Which rows belong to each client: those of client ``k`` are ``rows[start[k]:start[k+1]]``."""

    rows: Tensor
    start: Tensor

    def __len__(self) -> int:
        return len(self.start) - 1

    def counts(self) -> Tensor:
        """How many rows each client has."""
        return self.start.diff()

    def of(self, client: int) -> Tensor:
        """The rows of one client."""
        return self.rows[int(self.start[client]) : int(self.start[client + 1])]

    def spans(self, ids: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
        """Where the rows of these clients begin, and how many each has, on a device."""
        starts = self.start.to(device)
        begin = starts[ids]
        return begin, starts[ids + 1] - begin

    def to(self, device: torch.device | str) -> Split:
        """The same split on another device."""
        return Split(self.rows.to(device), self.start.to(device))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)  # tensors would fill the screen
class ClientRows:
    """What is known of the rows of all clients before they are split, and after."""

    x: Tensor
    """Features [n, …] in float32, or token ids in int64."""
    y: Tensor
    """Labels [n], or [n, t] for sequences."""
    y_train: Tensor
    """The labels that training sees: ``y``, but for label noise."""
    classes: int
    names: tuple[str, ...]
    label_shift_only: bool
    """Whether clients differ only in label shares or size: then the pooled test set is valid."""
    describe: dict[str, Any]
    """Where the data came from and how it was partitioned and split; written to files as JSON."""
    central: tuple[Tensor, Tensor] | None = None
    """A test set ``(x, y)`` that belongs to no client, such as MNIST's official one."""
    unit: Tensor | None = None
    """The group [n] of each row, 0, 1, …: rows that belong together, which a split keeps together
    and an evaluation counts as one; none: every row is a unit of its own."""
    pooled: bool | None = None
    """What the user says about ``label_shift_only``; it goes before what the data says."""
    columns: tuple[ColumnReport, ...] = ()
    """What became of each column of a table."""
    attributes: Attributes | None = None
    """Protected attributes of each row, which are no features; none: there are none."""
    numbers: Tensor | None = None
    """[clients] The number of each in the whole federation, of which these are a part; none: its
    place. Whatever is drawn for a client is drawn by its number."""

    def number_of(self, places: Tensor) -> Tensor:
        """The numbers of the clients at these places."""
        return places if self.numbers is None else self.numbers.to(places.device)[places]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class UnsplitData(ClientRows):
    """All rows, their clients, and the shares of the splits. Transforms change this.

    They do not change the central test set.
    """

    rows: Split
    """The rows of each client."""
    shares: Shares
    seed: int
    layout: Layout | None = None
    """How columns of a table become features; ``x`` then has a column for each, in float64, with
    NaN where a cell is missing and the position of each word."""
    rank: Tensor | None = None
    """The position of each row in an order that does not depend on that of the table's rows; none:
    rows are in an order of their own."""
    y_val: Tensor | None = None
    """The label of each row if the row is used in validation; none: ``y`` (without label noise)."""
    target: Target = field(default_factory=Target)
    """What labels are. Numbers are in their own unit here, in float64."""
    chronological: bool = False
    """Whether a client's rows are in the order of time, and are split in it."""
    part: Tensor | None = None
    """[n] Whether a row is for training, validation or test (0, 1, 2), where the data says so."""
    normalised: bool = False
    """Whether inputs are standardised by channel with the statistics of a fold's training rows."""

    @property
    def strata(self) -> Tensor:
        """The class of each row, which every split keeps in proportion.

        Sequences of labels and numbers have none.
        """
        if self.y.dim() == 1 and self.target.classes:
            return self.y
        return torch.zeros(len(self.y), dtype=torch.int64)


def keyed(seed: int, purpose: str) -> Tensor:
    """The key of one purpose: draws for one purpose never depend on those for another."""
    return rng.fold(rng.key(seed), zlib.crc32(purpose.encode()))


def from_counts(rows: Tensor, counts: Tensor) -> Split:
    """The split of rows that are already in the order of their clients."""
    return Split(rows, torch.cat([counts.new_zeros(1), counts.cumsum(0)]))


def from_owner(owner: Tensor, clients: int) -> Split:
    """The rows of each client, ascending, from the owner of each row; −1 is nobody's."""
    order = torch.argsort(owner, stable=True)
    counts = torch.bincount(owner[owner >= 0], minlength=clients)
    return from_counts(order[len(owner) - int(counts.sum()) :], counts)


def circle(
    clients: Split, strata: Tensor, seed: int, cycle: Tensor, numbers: Tensor | None = None
) -> Tensor:
    """``clients.rows`` with each client's rows in their stratified systematic order.

    ``strata`` is the class of every row of the data, ``cycle`` how often each client's circle has
    been used up, ``numbers`` what the clients are drawn by, if not their places.
    """
    K, n = len(clients), len(clients.rows)
    client = torch.repeat_interleave(torch.arange(K), clients.counts())
    stratum = strata[clients.rows]

    # Bring each (client, class) together, and permute within it by random words.
    group = client * (int(strata.max()) + 1) + stratum
    order = torch.argsort(group, stable=True)
    _, group, size = torch.unique_consecutive(group[order], return_inverse=True, return_counts=True)
    j = torch.arange(n) - (size.cumsum(0) - size)[group]
    numbers = torch.arange(K) if numbers is None else numbers.cpu()
    client_key = rng.fold(rng.fold(keyed(seed, "split"), cycle), numbers)
    key = rng.fold(client_key[client[order]], stratum[order])
    words = rng.bits(rng.fold(rng.fold(key, 0), j), 1).squeeze(-1)
    by_word = torch.argsort(words, stable=True)
    order = order[by_word[torch.argsort(group[by_word], stable=True)]]

    # The j-th of a group now sits at (j + u) / n_c; the key is the same for a whole group.
    u = rng.uniform(rng.fold(key, 1), ()).double()
    by_position = torch.argsort((j + u) / size[group], stable=True)
    order = order[by_position]
    return clients.rows[order[torch.argsort(client[order], stable=True)]]


def arcs(counts: Tensor, shares: Shares) -> tuple[Tensor, Tensor]:
    """The numbers of test and validation examples of each client, which leave one for training.

    A test arc is rounded down where ``⌊1 / test share⌋`` of them would not fit on the circle.
    """
    _, val_share, test_share = shares
    folds = int(1 / test_share + 1e-9)
    test = torch.floor(counts.double() * test_share + 0.5).long()
    test = torch.minimum(test, counts // folds).clamp(min=1).minimum(counts - 2)
    val = torch.floor(counts.double() * val_share + 0.5).long()
    return test, val.clamp(min=1).minimum(counts - test - 1)


def split_in_order(data: UnsplitData) -> tuple[Split, Split, Split]:
    """The first rows of each client for training, the next for validation, the last for testing."""
    counts = data.rows.counts()
    n_test, n_val = arcs(counts, data.shares)
    rows = torch.cat([data.rows.of(k).sort().values for k in range(len(data.rows))])
    client = torch.repeat_interleave(torch.arange(len(counts)), counts)
    left = (data.rows.start[1:])[client] - torch.arange(len(rows))
    in_test, in_train = left <= n_test[client], left > (n_test + n_val)[client]
    return (
        from_counts(rows[in_train], counts - n_test - n_val),
        from_counts(rows[~in_test & ~in_train], n_val),
        from_counts(rows[in_test], n_test),
    )


def split_clients(data: UnsplitData, fold: int) -> tuple[Split, Split, Split]:
    """The training, validation and test rows of a fold; every client has at least three rows."""
    if data.chronological:
        return split_in_order(data)
    clients = data.rows
    counts = clients.counts()
    n_test, n_val = arcs(counts, data.shares)
    lap = counts // n_test
    rows = circle(clients, data.strata, data.seed, fold // lap, data.numbers)

    client = torch.repeat_interleave(torch.arange(len(clients)), counts)
    begin = clients.start[:-1]
    step = torch.arange(len(rows)) - begin[client]
    rows = rows[begin[client] + (step + (fold % lap * n_test)[client]) % counts[client]]
    in_test = step < n_test[client]
    in_train = step >= (n_test + n_val)[client]
    return (
        from_counts(rows[in_train], counts - n_test - n_val),
        from_counts(rows[~in_test & ~in_train], n_val),
        from_counts(rows[in_test], n_test),
    )
