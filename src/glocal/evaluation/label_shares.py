"""How far a client's pooled benefit depends on label shares that are only estimated.

The pooled estimate weights the benefit ``a_c`` on examples of class ``c`` by the client's share
``s_c`` of that class, ``b = Σ_c s_c a_c``. The shares are counted in the ``n`` labels that the
client trains on: they are those of a sample. If its future examples come from where that sample
came from, the shares are multinomial, and given the ``a_c`` (the delta method, exact here as ``b``
is linear in the shares)::

    Var b = Σ_c s_c (a_c − b)² / n.

It is zero where all classes benefit alike. Repeats count nearly the same labels again, so it does
not shrink with their number. Labels of one group are taken as one draw: ``n`` is then
``n_eff = (Σ_u m_u)²/Σ_u m_u²`` for groups of ``m_u`` labels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from glocal.data.federation import Federation
from glocal.evaluation.distributions import Array
from glocal.evaluation.verdict import Verdict, Z, below_zero, word


def share_variance(difference: Tensor, y: Tensor, counts: Tensor, n: float | None = None) -> float:
    """``Var b``, from the pooled examples' differences and labels and the client's label counts.

    Classes that the pool lacks are left out, as they are of the benefit. ``n`` is the number of
    labels; by default the sum of ``counts``.
    """
    N = torch.bincount(y, minlength=len(counts)).double()
    held = torch.where(N > 0, counts.double(), 0.0)
    labels = float(held.sum()) if n is None else n
    if not held.sum() > 0 or not labels > 0:
        return 0.0
    share = held / held.sum()
    by_class = torch.bincount(y, difference.double(), minlength=len(counts)) / N.clamp(min=1)
    benefit = (share * by_class).sum()
    return float((share * (by_class - benefit) ** 2).sum() / labels)


def share_variances(feds: Sequence[Federation], differences: Sequence[Sequence[Array]]) -> Array:
    """``Var b`` of every client, the mean over repeats.

    Each repeat has every client's differences on all clients' test examples.
    """
    found: Array = np.zeros((len(feds), len(feds[0])))
    for r, (fed, of_clients) in enumerate(zip(feds, differences, strict=True)):
        y = fed.y[fed.test.rows].cpu()
        for k, difference in enumerate(of_clients):
            counts = torch.bincount(fed.y[fed.train.of(k)], minlength=fed.classes).cpu()
            n = independent_labels(fed, k)
            found[r, k] = share_variance(torch.from_numpy(difference), y, counts, n)
    return np.asarray(found.mean(0))


def widened(verdict: Verdict, variance: float, same: float) -> Verdict:
    """The verdict with an interval that covers the label shares, too."""
    if math.isnan(verdict.estimate) or variance == 0:
        return verdict
    added = Z**2 * variance
    low = verdict.estimate - math.sqrt((verdict.estimate - verdict.low) ** 2 + added)
    high = verdict.estimate + math.sqrt((verdict.high - verdict.estimate) ** 2 + added)
    p_worse = below_zero(verdict.estimate, (high - low) / 2 / Z)
    said = word(low, high, same)
    # What was decided by test examples and repeats, and is not with shares, needs more labels.
    needs = verdict.needs if said == "undecided" else None
    return replace(verdict, low=low, high=high, verdict=said, p_worse=p_worse, needs=needs)


def independent_labels(fed: Federation, client: int) -> float:
    """How many independent labels a client's label shares are counted in."""
    rows = fed.train.of(client)
    if fed.unit is None:
        return float(len(rows))
    sizes = torch.bincount(fed.unit[rows]).double()
    return float(sizes.sum() ** 2 / (sizes**2).sum().clamp(min=1))
