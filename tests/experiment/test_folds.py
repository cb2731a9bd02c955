"""Folds: every example in one of them, classes even, groups together."""

from __future__ import annotations

import numpy as np
import pytest

from glocal.core import rng
from glocal.experiment.folds import folds, held_out


@pytest.mark.parametrize("sizes", [(20, 31, 7), (5, 5), (9, 1, 2), (2, 40)])
def test_classes_and_sizes_are_even(sizes: tuple[int, ...]) -> None:
    y = np.repeat(np.arange(len(sizes)), sizes)
    fold = folds(y, None, rng.key(0))
    assert set(fold) == set(range(5))
    counts = np.bincount(fold)
    assert counts.max() - counts.min() <= 1
    for c in range(len(sizes)):
        of_class = np.bincount(fold[y == c], minlength=5)
        assert of_class.max() - of_class.min() <= 1


def test_the_key_decides() -> None:
    y = np.arange(40) % 3
    a, b, c = (folds(y, None, rng.key(seed)) for seed in (0, 0, 1))
    assert (a == b).all()
    assert (a != c).any()


@pytest.mark.parametrize(("sizes", "count"), [((3, 2), 3), ((2, 1), 2), ((1, 1), 0), ((1,), 0)])
def test_fewer_folds_where_classes_are_small(sizes: tuple[int, ...], count: int) -> None:
    y = np.repeat(np.arange(len(sizes)), sizes)
    assert len(held_out(folds(y, None, rng.key(0)))) == count


def test_groups_stay_together_and_classes_are_as_even_as_they_can_be() -> None:
    unit = np.repeat(np.arange(20) * 7, 5)  # ids need not be 0, 1, …
    y = np.repeat(np.arange(20) % 2, 5)  # a group is of one class
    fold = folds(y, unit, rng.key(3))
    for group in np.unique(unit):
        assert len(set(fold[unit == group])) == 1
    for c in (0, 1):  # ten groups of each class to five folds: two each
        assert (np.bincount(fold[y == c]) == 10).all()


def test_groups_of_unequal_size_are_kept_and_all_folds_are_used() -> None:
    unit = np.repeat(np.arange(12), np.arange(1, 13))
    y = np.random.default_rng(0).integers(0, 3, len(unit))
    fold = folds(y, unit, rng.key(3))
    assert set(fold) == set(range(5))
    assert all(len(set(fold[unit == group])) == 1 for group in range(12))
    alone = np.bincount(fold)
    assert alone.max() <= 2 * alone.min()


def test_too_few_groups_cannot_be_cross_validated() -> None:
    assert len(held_out(folds(np.array([0, 1] * 5), np.zeros(10, int), rng.key(0)))) == 0
    two = np.repeat([0, 1], 5)
    assert len(held_out(folds(np.array([0, 1] * 5), two, rng.key(0)))) == 2
