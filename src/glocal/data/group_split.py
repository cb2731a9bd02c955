"""Splits that keep groups whole: training, validation and test of clients whose rows have groups.

A client's groups are first put into ``⌊1 / test share⌋`` bins of the test share each (and a rest,
where that leaves one): bin ``r`` is the test set of fold ``r``, so the test sets of a cycle have no
group in common. From the other groups of a fold, validation takes its share and training the rest.
After the last bin a new cycle begins, with other bins.

Both steps are one greedy rule, *a group goes where most of its rows are still wanted*. With
``t_bc`` rows of class ``c`` wanted in bin ``b``, ``h_bc`` already there, ``m_c`` rows in the group
and ``N_c`` at the client, that is the bin that maximises ::

    Σ_c m_c (t_bc − h_bc)/N_c  +  m (t_b − h_b)/N,        without index c: of all classes,

which lowers ``Σ_b Σ_c (h_bc − t_bc)²/N_c + Σ_b (h_b − t_b)²/N`` the most. Large groups go first
(in sizes from one power of two to the next, at random within them), and small ones then even out
what these left. The idea is that of scikit-learn's ``StratifiedGroupKFold``.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from glocal.core import rng
from glocal.core.errors import GlocalError, shown
from glocal.data.split import Split, UnsplitData, from_counts, keyed

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LEAST = 3
"""The groups that a client needs for training, validation and test."""


def split_groups(data: UnsplitData, fold: int) -> tuple[Split, Split, Split]:
    """The training, validation and test rows of a fold, each group whole in one of them."""
    if data.unit is None:
        raise RuntimeError("data without groups is split by its rows")
    strata = data.strata
    parts: list[list[Tensor]] = [[], [], []]
    numbers = data.number_of(torch.arange(len(data.names))).tolist()
    for k, number in enumerate(numbers):
        rows = data.rows.of(k)
        group, class_counts = _by_class(data.unit[rows], strata[rows])
        _check_count(data.names[k], len(class_counts))
        place = _placed(class_counts, data.shares, data.seed, number, fold)
        where = torch.from_numpy(place)[group]
        for part, chosen in enumerate(parts):
            chosen.append(rows[where == part])
    train, val, test = (
        from_counts(torch.cat(rows), torch.tensor([len(r) for r in rows])) for rows in parts
    )
    return train, val, test


def _by_class(unit: Tensor, y: Tensor) -> tuple[Tensor, Floats]:
    """The group of each row, from 0, and each group's rows of each class [groups, classes]."""
    units, group = torch.unique(unit, return_inverse=True)
    classes, label = torch.unique(y, return_inverse=True)
    counts = torch.bincount(group * len(classes) + label, minlength=len(units) * len(classes))
    return group, counts.view(len(units), len(classes)).double().numpy()


def _check_count(client: str, groups: int) -> None:
    if groups < LEAST:
        raise GlocalError(
            f"client {shown(client)} has {groups} group{'' if groups == 1 else 's'}, and groups "
            "are kept whole, so training, validation and test need one each: leave such clients "
            f"out with min_examples={LEAST}, merge them, or name finer groups."
        )


def _placed(
    counts: Floats, shares: tuple[float, float, float], seed: int, client: int, fold: int
) -> Ints:
    """Where each group of a client goes: 0 training, 1 validation, 2 test."""
    _, val_share, test_share = shares
    G = len(counts)
    bins = min(int(1 / test_share + 1e-9), G)
    cycle, r = divmod(fold, bins)
    words = rng.bits(rng.fold(rng.fold(keyed(seed, "group split"), cycle), client), G).numpy()
    most = G - 2  # of a test set: training and validation need a group each
    rest = max(1 - bins * test_share, 0.0)
    wanted = [test_share] * bins
    if bins < G and (rest > 1e-9 or bins * most < G):
        wanted.append(rest)
    of_bin = _assigned(counts, wanted, words, bins, most)
    place = np.where(of_bin == r, 2, 0)
    others = (place == 0).nonzero()[0]
    val = val_share / (1 - test_share)
    place[others] = _assigned(counts[others], [1 - val, val], words[others], 2, G)
    return place


def _assigned(counts: Floats, wanted: list[float], words: Ints, bins: int, most: int) -> Ints:
    """The bin of each group, for bins that want these shares of the rows.

    Each of the first ``bins`` gets at least one group and at most ``most``.
    """
    rows = np.hstack([counts, counts.sum(1, keepdims=True)])  # of each class, and of all
    total = rows.sum(0)
    weighted = rows / np.maximum(total, 1)
    need = np.array(wanted)[:, None] / math.fsum(wanted) * total
    of_bin = np.empty(len(rows), np.int64)
    held = np.zeros(len(wanted), np.int64)
    for g in np.lexsort((words, -np.frexp(rows[:, -1])[1])):
        # A sum that is exact but for one rounding: ties are the same ties on every machine.
        gain = [math.fsum(terms) for terms in (need * weighted[g]).tolist()]
        full = [b < bins and held[b] >= most for b in range(len(wanted))]
        b = max((b for b in range(len(wanted)) if not full[b]), key=gain.__getitem__)
        of_bin[g] = b
        held[b] += 1
        need[b] -= rows[g]
    for b in range(bins):  # where few large groups are all there is, a bin may be left empty
        if held[b] == 0:
            giver = (of_bin == held.argmax()).nonzero()[0]
            g = giver[rows[giver, -1].argmin()]
            held[of_bin[g]] -= 1
            of_bin[g], held[b] = b, 1
    return of_bin
