"""The data of a federation's clients: all rows, and who trains, validates and tests on which."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal.core.padding import label_counts
from glocal.core.target import Target
from glocal.core.types import Batch
from glocal.core.validation import integer
from glocal.data.given_split import split_as_given
from glocal.data.group_split import split_groups
from glocal.data.normalising import channel_statistics, standardised
from glocal.data.preprocessing.fitted import Preprocessing
from glocal.data.split import ClientRows, Split, UnsplitData, from_counts, split_clients

Pair = tuple[Tensor, Tensor]

SPLITS = ("train", "val", "test")


@dataclass(frozen=True, eq=False, repr=False)
class ClientData:
    """One client's data; each split is ``(x, y)``."""

    name: str
    train: Pair
    val: Pair
    test: Pair

    def __repr__(self) -> str:
        """Whose data it is, and how much."""
        train, val, test = (len(split[1]) for split in (self.train, self.val, self.test))
        return (
            f"<ClientData of {self.name!r}: {train} training, {val} validation, {test} test rows>"
        )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Federation(ClientRows):
    """The data of K clients. All rows are in one tensor, and each split assigns rows to clients.

    Labels ``y`` are true ones, but for validation rows with noisy labels, and ``y_train`` has those
    of training and validation rows. Of a regression, they are standardised (``target`` has their
    unit).
    """

    train: Split
    val: Split
    test: Split
    unsplit: UnsplitData | None = None
    """The data from which other folds are made; none if the splits were given."""
    preprocessing: Preprocessing | None = None
    """How rows of the table became ``x``, fitted on the training rows; none: it was no table."""
    targets: tuple[Target, ...] = (Target(),)
    """What labels are, and the unit of numbers: ``y`` and ``y_train`` are standardised. Of several
    federations side by side, one for each, in the order of their clients."""

    @property
    def target(self) -> Target:
        """What labels are, and their unit."""
        return self.targets[0]

    @property
    def examples(self) -> Batch:
        """What a mini-batch has of each row but its weight; all rows of it."""
        examples = {"x": self.x, "y": self.y_train}
        if self.attributes is not None:
            examples["attributes"] = self.attributes.codes
        return examples

    def batch(self, rows: Tensor, weight: Tensor) -> Batch:
        """The mini-batch of these rows."""
        return {part: values[rows] for part, values in self.examples.items()} | {"weight": weight}

    def units_of(self, rows: Tensor) -> Tensor:
        """The unit of each of these rows; without groups, each row is one.

        They are numbered in an order that is not that of a table's rows, so that sums over them are
        the same to the last bit however the table is sorted.
        """
        rows = rows.cpu()
        if self.unit is not None:
            return self.unit.cpu()[rows]
        rank = None if self.unsplit is None else self.unsplit.rank
        return rows if rank is None else rank[rows]

    @cached_property
    def label_counts(self) -> Tensor:
        """[n] How many labels each row has, in float32: 1, or the positions that count."""
        return label_counts(self.y).float()

    @cached_property
    def vocabulary(self) -> int | None:
        """How many token ids there are, with that of padding; none where inputs are numbers."""
        if self.x.is_floating_point():
            return None
        known = self.describe.get("vocabulary")
        return int(self.x.max()) + 1 if known is None else int(known)

    def unit_of(self, clients: Tensor) -> tuple[Tensor, Tensor]:
        """The location and the scale of these clients' labels, in float64."""
        each = torch.tensor([(t.location, t.scale) for t in self.targets], dtype=torch.float64)
        rows = each[clients.cpu() * len(self.targets) // len(self)]
        return rows[:, 0], rows[:, 1]

    def __repr__(self) -> str:
        """Whose data it is, and how much: tensors would fill the screen."""
        about = self.describe.get("data", "own data")
        what = f"{self.classes} classes" if self.target.classes else f"for {self.target.task}"
        return f"<Federation of {about!r}: {len(self)} clients, {len(self.y)} rows, {what}>"

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
        parts = ("x", "y", "y_train", "train", "val", "test", "unit", "numbers", "attributes")
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
        fold = fold_of(self.unsplit, integer(r, "the fold", 0))
        own_inputs = self.unsplit.layout is not None or self.unsplit.normalised
        if self.target.classes and not self.unsplit.normalised:
            fold = replace(fold, central=self.central)
        if not own_inputs:
            fold = replace(fold, x=self.x)
        return fold.to(self.x.device)

    def part(self, clients: Sequence[int]) -> Federation:
        """Some of the clients (by place), with their own rows and no others, as a node has them.

        They train as they do in the whole, since each keeps its number. Of a table, or where labels
        are numbers, the statistics are those of the whole, which other folds would not have.
        """
        places = torch.tensor(clients, dtype=torch.int64)
        splits = [s.of(k).cpu() for k in clients for s in (self.train, self.val, self.test)]
        rows = torch.unique(torch.cat(splits))
        place = torch.zeros(len(self.y), dtype=torch.int64)
        place[rows] = torch.arange(len(rows))

        def cut(split: Split) -> Split:
            each = [place[split.of(k).cpu()] for k in clients]
            return from_counts(torch.cat(each), torch.tensor([len(r) for r in each]))

        about: dict[str, Any] = {"clients": len(clients), "n": len(rows)}
        if self.vocabulary is not None:
            about["vocabulary"] = self.vocabulary  # not only of the tokens that these clients have

        def part_of(data: ClientRows) -> dict[str, Any]:
            names = ("x", "y", "y_train", "unit", "attributes")
            held = {name: getattr(data, name) for name in names}
            return {
                **{name: t if t is None else t[rows.to(t.device)] for name, t in held.items()},
                "names": tuple(self.names[k] for k in clients),
                "numbers": self.number_of(places),
                "central": None,
                "describe": {**data.describe, **about},
            }

        unsplit = self.unsplit
        if unsplit is not None and (
            unsplit.layout is not None or unsplit.normalised or not self.target.classes
        ):
            unsplit = None
        if unsplit is not None:
            of_rows = {name: getattr(unsplit, name) for name in ("rank", "y_val", "part")}
            of_rows = {name: t if t is None else t[rows] for name, t in of_rows.items()}
            unsplit = replace(unsplit, **part_of(unsplit), **of_rows, rows=cut(unsplit.rows))
        splits_of: dict[str, Any] = {name: cut(getattr(self, name)) for name in SPLITS}
        found = replace(self, **part_of(self), **splits_of, unsplit=unsplit)
        return found.to(self.x.device)

    def numbered(self, numbers: Sequence[int]) -> Federation:
        """The same clients as those of these numbers in a larger federation, split accordingly."""
        wanted = torch.tensor(numbers, dtype=torch.int64)
        if torch.equal(self.number_of(torch.arange(len(self))).cpu(), wanted):
            return self
        if self.unsplit is None:
            return replace(self, numbers=wanted).to(self.x.device)
        fold = int(self.describe.get("fold", 0))
        return fold_of(replace(self.unsplit, numbers=wanted), fold).to(self.x.device)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the data and its splits: equal for federations that train the same way.

        The central test set is not part of it, because no client trains on it.
        """
        digest = hashlib.sha256()
        tensors = [self.x, self.y, self.y_train]
        tensors += [] if self.attributes is None else [self.attributes.codes]
        tensors += [t for s in (self.train, self.val, self.test) for t in (s.rows, s.start)]
        for tensor in tensors:
            array = np.ascontiguousarray(tensor.cpu().numpy())
            digest.update(f"{array.dtype.str} {array.shape} ".encode())
            digest.update(array.data)
        if not self.target.classes:
            digest.update(repr(self.targets).encode())
        return digest.hexdigest()


def rows_of(data: UnsplitData, fold: int) -> tuple[Split, Split, Split]:
    """The training, validation and test rows of a fold."""
    if data.part is not None:
        return split_as_given(data)
    return (split_clients if data.unit is None else split_groups)(data, fold)


def fold_of(data: UnsplitData, fold: int) -> Federation:
    """One fold of the data."""
    train, val, test = rows_of(data, fold)
    y, y_train = data.y, data.y.clone()
    # Who trains on validation rows, too, once everything is chosen, meets the same noise there.
    for rows in (train.rows, val.rows):
        y_train[rows] = data.y_train[rows]
    if data.y_val is not None:
        y = y.clone()
        y[val.rows] = data.y_val[val.rows]
    target = data.target.fitted(data.y_train[train.rows])
    y, y_train = target.standardised(y), target.standardised(y_train)
    central = data.central
    if central is not None:
        central = (central[0], target.standardised(central[1]))
    x, about, fitted = data.x, data.describe, None
    if data.layout is not None:
        fitted = data.layout.fit(data.x, train, data.names)
        x = data.layout.transform(data.x, fitted, data.rows)
        about = {**about, "features": fitted.features, "categories": fitted.categories}
    if data.normalised:
        mean, std = channel_statistics(x, train.rows)
        x = standardised(x, mean, std)
        if central is not None:
            central = (standardised(central[0], mean, std), central[1])
        about = {**about, "normalised": {"mean": mean.tolist(), "std": std.tolist()}}
    same = {each.name: getattr(data, each.name) for each in fields(ClientRows)}
    labels = {"y": y, "y_train": y_train, "central": central}
    return Federation(
        **{**same, **labels, "x": x, "describe": {**about, "fold": fold}},
        train=train,
        val=val,
        test=test,
        unsplit=data,
        preprocessing=fitted,
        targets=(target,),
    )
