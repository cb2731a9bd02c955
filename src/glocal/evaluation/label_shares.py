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

import torch
from torch import Tensor

from glocal.data.federation import Federation


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


def independent_labels(fed: Federation, client: int) -> float:
    """How many independent labels a client's label shares are counted in."""
    rows = fed.train.of(client)
    if fed.unit is None:
        return float(len(rows))
    sizes = torch.bincount(fed.unit[rows]).double()
    return float(sizes.sum() ** 2 / (sizes**2).sum().clamp(min=1))
