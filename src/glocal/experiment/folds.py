"""Folds of cross-validation: stratified by class, and groups stay together.

Examples are put in the order of their classes, at random within a class, and assigned to the folds
in turn: the sizes of folds, and the examples of a class in each of them, differ by one at most.
Where rows belong together, whole groups are assigned instead, the largest first, each to the fold
in which it leaves the classes most even (as scikit-learn's StratifiedGroupKFold does).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glocal.core import rng
from glocal.data.federation import Federation

FOLDS = 5
"""Folds of cross-validation, where there is enough to fill them."""

Integers = NDArray[np.int64]


def learnable(fed: Federation, k: int, *, tune: bool) -> Tensor:
    """The rows that a client may learn from: validation data too where it is refitted."""
    return torch.cat([fed.train.of(k), fed.val.of(k)]) if tune else fed.train.of(k)


def folds_of(fed: Federation, k: int, seed: int, *, tune: bool) -> Integers:
    """The fold of each row that a client may learn from: the same for all that it tries."""
    rows = learnable(fed, k, tune=tune).cpu()
    unit = None if fed.unit is None else fed.unit.cpu()[rows].numpy()
    number = int(fed.number_of(torch.tensor(k)))
    key = rng.fold(rng.fold(rng.key(seed), 0xF01D), number)
    # Numbers have no classes to keep in proportion.
    y = fed.y_train.cpu()[rows] if fed.target.classes else torch.zeros(len(rows), dtype=torch.int64)
    return folds(y.numpy(), unit, key)


def folds(y: Integers, unit: Integers | None, key: Tensor, at_most: int = FOLDS) -> Integers:
    """The fold of each example, [n]; all in fold 0 where there is too little to cross-validate.

    There are as many folds as the class with the most units has units, ``at_most`` at most: a
    smaller class is then absent from some folds' held-out part, or from one fold's training part.
    """
    units = np.arange(len(y)) if unit is None else np.unique(unit, return_inverse=True)[1]
    per_class = [len(np.unique(units[y == c])) for c in np.unique(y)]
    count = min(at_most, max(per_class, default=0), len(np.unique(units)))
    if count < 2:
        return np.zeros(len(y), np.int64)
    shuffled = rng.permutation(key, len(np.unique(units))).numpy()
    if unit is None:
        return _by_class(y, shuffled, count)
    return _by_group(y, units, shuffled, count)


def held_out(fold: Integers) -> range:
    """The numbers of the folds; none where there are fewer than two."""
    count = int(fold.max(initial=0)) + 1
    return range(count if count > 1 else 0)


def _by_class(y: Integers, shuffled: Integers, count: int) -> Integers:
    order = shuffled[np.argsort(y[shuffled], kind="stable")]
    fold = np.empty(len(y), np.int64)
    fold[order] = np.arange(len(y)) % count
    return fold


def _by_group(y: Integers, units: Integers, shuffled: Integers, count: int) -> Integers:
    classes = np.unique(y, return_inverse=True)[1]
    table = np.zeros((len(shuffled), classes.max() + 1))  # examples of each class in each group
    np.add.at(table, (units, classes), 1)
    total = table.sum(0)
    largest_first = shuffled[np.argsort(-table[shuffled].sum(1), kind="stable")]
    filled = np.zeros((count, len(total)))
    of_group = np.empty(len(shuffled), np.int64)
    for group in largest_first:
        # How uneven the classes' shares of the folds would be, with the group in each of them.
        after = filled[None] + np.eye(count)[:, :, None] * table[group]
        uneven = (after / total).std(1).mean(1)
        sizes = filled.sum(1)
        chosen: Any = min(range(count), key=lambda f: (round(uneven[f], 9), sizes[f]))
        filled[chosen] += table[group]
        of_group[group] = chosen
    return of_group[units]
