"""What a client's test examples say of its benefit, repeat by repeat, and how surely.

A method's model and the client's baseline are tested on the same examples. Example ``j`` has a
weight ``w_j`` (of sum 1: equal on the client's own test split, ``share_c/N_c`` on all clients'
test examples) and a difference ``x_j``, that of the two models' values: 1 or −1 where only one of
them is right. Examples that belong together (one patient's) are one unit ``g``, of weight
``W_g = Σ w_j`` and mean difference ``x_g = Σ w_j x_j / W_g``. In one repeat::

    b = Σ_g W_g x_g                               the benefit
    d = Σ_g W_g x_g²,   n_e = 1/Σ_g W_g²          the share of units that differ, and how many count
    v = max(d̃ − b̄², .3 d̃)/n_e                     the variance of b over test sets
    d̃ = (n_e d + a D)/(n_e + a)

``a`` examples more keep ``v`` from being zero where by chance no example differs. On all clients'
test examples, of which there are many, these are two of which one differs (``D = ½``), and no mean
benefit ``b̄`` is taken off. On own test splits, which may be small, they are ten of the federation's
mean ``D = (Σ n_e d + u)/(Σ n_e + 2)``. Two models differ by 1 on an example that one of them has
right; of another metric, ``u`` is the variance of what examples contribute to it.

Over repeats, ``o = Σ_g (mean_r W_gr)² / mean_r Σ_g W_gr²`` is the share of ``v`` that is left in
the mean (:mod:`glocal.evaluation.moderated_t`), and ``Σ_g (mean_r mean_k W_gkr x_gkr)²`` the
variance, over test sets, of the mean benefit over clients and repeats; at least that of two more
examples, of which one differs.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.evaluation.distributions import Array


@dataclass(frozen=True)
class Pairs:
    """One repeat: the units, weights and differences of every client's test examples."""

    units: Sequence[NDArray[np.int64]]
    """For each client: which unit each of its test examples belongs to."""
    weight: Sequence[Array]
    """For each client: of sum 1; of no examples, empty."""
    difference: Sequence[Array]


@dataclass(frozen=True)
class PairedDifferences:
    """All repeats of all clients, [repeats, clients] where nothing else is said."""

    benefit: Array
    """NaN where a client has nothing to test."""
    differing: Array
    """``d``."""
    effective: Array
    """``n_e``."""
    noise: Array
    """``v``."""
    overlap: Array
    """[clients], ``o``."""
    of_mean: float
    """The variance of the mean over clients and repeats that the test examples alone give."""
    of_mean_once: float
    """The same of one repeat's mean over clients, on average."""


def paired_differences(
    repeats: Sequence[Pairs], *, pooled: bool, unit: float = 1.0
) -> PairedDifferences:
    """The benefit of every client in every repeat.

    ``pooled``: clients are tested on everybody's examples. ``unit``: ``u``, 1 of accuracies.
    """
    clients = len(repeats[0].units)
    benefit, differing, concentration = (np.full((len(repeats), clients), np.nan) for _ in range(3))
    everything = [ids for tested in repeats for ids in tested.units]
    units = 1 + max((int(ids.max()) for ids in everything if len(ids)), default=0)
    of_all, of_mean_once = np.zeros(units), []
    grouped = _Grouped()
    for r, tested in enumerate(repeats):
        in_this, tested_here = np.zeros(units), sum(len(ids) > 0 for ids in tested.units)
        for k in range(clients):
            ids, w = tested.units[k], tested.weight[k]
            if len(ids):
                group, place = grouped(ids)
                weight = np.bincount(place, w, len(group))
                total = np.bincount(place, w * tested.difference[k], len(group))
                there = weight > 0
                benefit[r, k] = total.sum()
                differing[r, k] = (total[there] ** 2 / weight[there]).sum()
                concentration[r, k] = (weight**2).sum()
                in_this[group] += total / tested_here
        if tested_here:
            of_all += in_this
            of_mean_once.append(math.fsum(in_this**2))  # in any order the same
    effective = 1 / concentration
    noise = noise_of(benefit, differing, effective, pooled=pooled, unit=unit)
    overlap = np.array(
        [_overlap([(t.units[k], t.weight[k]) for t in repeats], grouped) for k in range(clients)]
    )
    # Where by chance no example differs: one of two more would.
    n = len(np.unique(np.concatenate(everything)))
    least = unit / (n + 2) / max(n, 1)
    return PairedDifferences(
        benefit,
        differing,
        effective,
        noise,
        overlap,
        max(math.fsum(of_all**2) / max(len(of_mean_once), 1) ** 2, least),
        max(float(np.mean(of_mean_once or [0.0])), least),
    )


def noise_of(
    benefit: Array, differing: Array, effective: Array, *, pooled: bool, unit: float = 1.0
) -> Array:
    """``v`` of every client in every repeat."""
    if pooled:
        return (effective * differing + 1) / (effective + 2) / effective
    there = np.isfinite(benefit)
    n = float(effective[there].sum())
    typical = (float((effective * differing)[there].sum()) + unit) / (n + 2)
    square = (effective * differing + 10 * typical) / (effective + 10)
    mean = float(benefit[there].mean()) if there.any() else 0.0
    return np.maximum(square - mean**2, 0.3 * square) / effective


def _overlap(tests: Sequence[tuple[NDArray[np.int64], Array]], grouped: _Grouped) -> float:
    """``o`` of one client."""
    there = [(ids, w) for ids, w in tests if len(ids)]
    if not there:
        return 1.0
    once = []
    for ids, w in there:
        group, place = grouped(ids)
        once.append(float((np.bincount(place, w, len(group)) ** 2).sum()))
    group, place = grouped(*(ids for ids, _ in there))
    weight = np.bincount(place, np.concatenate([w for _, w in there]), len(group)) / len(there)
    return float((weight**2).sum()) / float(np.mean(once))


class _Grouped:
    """The distinct units of some tests, and where each example's is; of the same tests, once.

    On all clients' test examples every client is tested on the same ones.
    """

    def __init__(self) -> None:
        self.last: tuple[Sequence[NDArray[np.int64]], tuple[NDArray[np.int64], Any]] | None = None

    def __call__(self, *ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        known = self.last
        if known and len(known[0]) == len(ids) and all(map(operator.is_, known[0], ids)):
            return known[1]
        found = np.unique(np.concatenate(ids), return_inverse=True)
        self.last = (ids, found)
        return found
