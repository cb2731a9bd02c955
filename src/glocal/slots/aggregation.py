"""Aggregators: how a cohort's updates, stacked, become one; robustness lives in this slot.

The robust ones a few malicious (Byzantine) clients cannot lead where they like. None depends on the
order of clients, and all but ``norm-bound`` count clients alike: how many examples a client has is
its own word. Of a cohort of m clients that is smaller than an aggregator is made for (Poisson
sampling), it drops as many as it can and keeps the rest: of one client its update, of two their
mean. An update that is not finite never gets here: the cohort of a robust aggregator is used
without it (:mod:`glocal.training.divergence`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.core.types import Params
from glocal.core.validation import integer, positive
from glocal.slots.weighting import Setting

TIED = 1 + 1e-6
"""Scores that differ by less than this factor are equal: engines add up in different orders."""


@dataclass(frozen=True)
class Combine:
    """An aggregator: ``combine(updates, p)`` of updates stacked over clients and their weights."""

    name: str
    combine: Callable[[Params, Tensor], Params]
    weighted: bool = True
    """Whether the weights are used; if not, an explicit weighting is refused."""
    robust: bool = False
    """Whether it is made for malicious clients: an update that is not finite is then left out,
    where else it would stop the run."""
    check: Callable[[Setting], None] = lambda setting: None
    """Raises, before anyone trains, where a round would have too few clients."""


def mean() -> Combine:
    """The weighted mean of the updates, ``Σ p_i Δ_i``.

    It helps where nobody is malicious, and is the default. It does not help against a single
    malicious client, which can replace the model.
    """
    return Combine("mean", lambda updates, p: tree.map(lambda x: weighted_sum(x, p), updates))


def weighted_sum(stacked: Tensor, p: Tensor) -> Tensor:
    """``Σ p_i x_i`` over the first dimension."""
    shape = stacked.shape[1:]
    total = p.to(stacked.dtype).unsqueeze(0) @ stacked.reshape(len(stacked), shape.numel())
    return total.view(shape)


def median() -> Combine:
    """The median of every coordinate, of an even number the mean of the middle two.

    Yin, Chen, Ramchandran, Bartlett: *Byzantine-robust distributed learning: towards optimal
    statistical rates*, ICML 2018. Holds while fewer than half of a cohort are malicious.

    It helps against a few malicious clients, backdoors among their attacks, where honest ones are
    alike. It does not help where clients differ: it cost ten points without an attack, as rare data
    looks like an attack.
    """

    def combine(updates: Params, p: Tensor) -> Params:
        return tree.map(lambda x: trimmed(x, (len(x) - 1) // 2), updates)

    return Combine("median", combine, weighted=False, robust=True)


def trimmed_mean(share: float = 0.1) -> Combine:
    """The mean of every coordinate without the ``share`` of largest and of smallest values.

    Yin, Chen, Ramchandran, Bartlett: *Byzantine-robust distributed learning: towards optimal
    statistical rates*, ICML 2018. ``⌈share · m⌉`` are dropped at either end, at most so many that
    one or two are left; with share 0 it is the mean. Holds while no more are malicious than that.
    Departure: rounded up, so that a small cohort is protected too.

    It helps against a few malicious clients, backdoors among their attacks; where clients differ it
    cost three points without an attack. It does not help against more of them than are cut off, or
    against updates that look honest.

    Args:
        share: share of values that is left out at either end.
    """
    if not 0 <= share < 0.5:
        raise GlocalError(
            f"trimmed-mean drops a share from each end, so it must be 0 or more and below 0.5, "
            f"not {share}."
        )

    def combine(updates: Params, p: Tensor) -> Params:
        m = len(p)
        # Without the small number, 0.1 · 30 would be above 3.
        k = min(math.ceil(share * m - 1e-9), (m - 1) // 2)
        return tree.map(lambda x: trimmed(x, k), updates)

    return Combine("trimmed-mean", combine, weighted=False, robust=True)


def trimmed(x: Tensor, k: int) -> Tensor:
    """The mean over the first dimension without the ``k`` largest and smallest of each entry."""
    return x.sort(0).values[k : len(x) - k].mean(0)


def krum(malicious: float = 0.2) -> Combine:
    """The one update that is nearest to its neighbours; ``malicious``: how many, or a share.

    Blanchard, El Mhamdi, Guerraoui, Stainer: *Machine learning with adversaries: Byzantine tolerant
    gradient descent*, NeurIPS 2017. With f malicious of m, the update i of the lowest score

        s_i = Σ ‖Δ_i − Δ_j‖²  over the m − f − 2 updates j nearest to i,

    over all shared parameters together. Holds for m ≥ 2f + 3; a smaller cohort takes the largest f
    for which that is so. Departure: updates that tie are averaged, where the paper takes the first,
    so that the order of clients does not matter.

    It helps against a few malicious clients where all honest ones are alike. It does not help where
    clients differ: it follows one client a round, and cost thirty points without an attack.

    Args:
        malicious: how many clients are, or (below 1) which share.
    """
    return _nearest("krum", malicious, lambda m, f: 1)


def multi_krum(malicious: float = 0.2, keep: int | None = None) -> Combine:
    """The mean of the ``keep`` updates of the lowest Krum scores, by default of all but f.

    Blanchard, El Mhamdi, Guerraoui, Stainer: *Machine learning with adversaries: Byzantine tolerant
    gradient descent*, NeurIPS 2017: ``krum`` is ``keep=1``. Scored once, then the best are kept.

    It helps against malicious clients that stand out, and cost nothing where honest ones are alike.
    It does not help where clients differ, as rare data is left out: six points without an attack.

    Args:
        malicious: how many clients are, or (below 1) which share.
        keep: how many updates are kept; by default all but the malicious.
    """
    if keep is not None:
        integer(keep, "keep", 1)
    return _nearest("multi-krum", malicious, lambda m, f: m - f if keep is None else min(keep, m))


def _nearest(name: str, malicious: float, kept: Callable[[int, int], int]) -> Combine:
    whole = isinstance(malicious, int) and not isinstance(malicious, bool) and malicious >= 0
    if not whole and not (isinstance(malicious, float) and 0 <= malicious < 0.5):
        raise GlocalError(
            f"{name}'s malicious must be an integer number of clients in a round, or a share of "
            f"them below 0.5, not {malicious}."
        )

    def expected(m: int) -> int:
        return int(malicious) if whole else round(malicious * m)

    def combine(updates: Params, p: Tensor) -> Params:
        m = len(p)
        f = min(expected(m), max(0, (m - 3) // 2))
        chosen = lowest(krum_scores(squared_distances(updates, p), f), kept(m, f))
        return tree.map(lambda x: x[chosen].mean(0), updates)

    def check(setting: Setting) -> None:
        m = round(setting.clients * setting.taking_part)
        f = expected(m)
        if m < 2 * f + 3:
            raise GlocalError(
                f"{name} cannot tell {f} malicious of {m} clients in a round from the others: it "
                f"needs {2 * f + 3} clients in a round, or a smaller malicious= (or use median)."
            )

    return Combine(name, combine, weighted=False, robust=True, check=check)


def krum_scores(distances: Tensor, f: int) -> Tensor:
    """Each client's sum of squared distances to its ``m − f − 2`` nearest (at least one)."""
    m = len(distances)
    if m == 1:
        return distances[0]
    itself = torch.eye(m, dtype=torch.bool, device=distances.device)
    near = distances.masked_fill(itself, math.inf).sort(1).values
    return near[:, : max(1, m - f - 2)].sum(1)


def lowest(scores: Tensor, count: int) -> Tensor:
    """Which have the ``count`` lowest scores; all that tie with the last of them too."""
    return (scores <= scores.sort().values[count - 1] * TIED).nonzero().flatten()


def squared_distances(updates: Params, p: Tensor) -> Tensor:
    """``‖Δ_i − Δ_j‖²`` over all parameters together, in double precision."""
    total = torch.zeros(len(p), len(p), dtype=torch.float64, device=p.device)
    # In the order of names, so that a run that was saved and loaded adds up the same.
    for _, x in sorted(updates.items()):
        flat = x.reshape(len(x), -1).double()
        # Not by a product of matrices: next to a large update the small ones' distances drown.
        apart = torch.cdist(flat, flat, compute_mode="donot_use_mm_for_euclid_dist")
        total = total + apart.square()
    return total


def geometric_median(smoothing: float = 1e-6, iterations: int = 200) -> Combine:
    """The point with the least sum of distances to all updates.

    Pillutla, Kakade, Harchaoui: *Robust aggregation for federated learning*, IEEE Transactions on
    Signal Processing 2022 (RFA). The smoothed Weiszfeld algorithm,

        z ← Σ β_i Δ_i / Σ β_i,   β_i = 1 / max(ν, ‖z − Δ_i‖),

    with ν = ``smoothing``, until z stays where it is, or for so many ``iterations``. Holds while
    fewer than half of a cohort are malicious. Departures: clients count alike, as a client's
    number of examples is its own word; and z starts at the median of every coordinate, from where
    outliers are far from the first step on.

    It helps against a few malicious clients: where clients differ it cost one point without an
    attack, and of all it lost least but one to a sign-flip. It does not help against backdoors, as
    it keeps a part of every update.

    Args:
        smoothing: distance below which updates count alike.
        iterations: steps at most.
    """
    positive(smoothing=smoothing)
    integer(iterations, "iterations", 1)

    def combine(updates: Params, p: Tensor) -> Params:
        z = tree.map(lambda x: trimmed(x, (len(x) - 1) // 2).double(), updates)
        for _ in range(iterations):
            beta = 1 / tree.row_sq_norms(updates, p, z).sqrt().clamp(min=smoothing)
            beta = beta / beta.sum()
            moved = tree.map(lambda x, beta=beta: weighted_sum(x.double(), beta), updates)
            step, z = tree.sq_norm(tree.sub(moved, z)), moved
            if step <= 1e-20 * tree.sq_norm(z):
                break
        return tree.map(lambda z, x: z.to(x.dtype), z, updates)

    return Combine("geometric-median", combine, weighted=False, robust=True)


def norm_bound(bound: float | None = None) -> Combine:
    """The weighted mean of updates scaled down to a norm of at most ``bound``.

    Sun, Kairouz, Suresh, McMahan: *Can you really backdoor federated learning?*, 2019:
    ``Σ p_i Δ_i min(1, bound / ‖Δ_i‖)``. The bound is the cohort's median norm unless it is given.
    It limits what a malicious client can do in a round to its share of a step; it does not leave
    it out, so many rounds of small harm add up.

    It helps against single large updates, at one point without an attack. It does not help against
    many small ones, sign-flips or backdoors.

    Args:
        bound: largest norm of an update; by default the cohort's median.
    """
    if bound is not None and not bound > 0:
        raise GlocalError(f"norm-bound needs a bound above 0, not {bound}.")

    def combine(updates: Params, p: Tensor) -> Params:
        norms = tree.row_sq_norms(updates, p).sqrt()
        limit = trimmed(norms, (len(norms) - 1) // 2) if bound is None else norms.new_tensor(bound)
        scale = torch.where(norms > limit, limit / norms, 1.0)
        return tree.map(lambda x: weighted_sum(x, p * scale.to(p)), updates)

    return Combine("norm-bound", combine, robust=True)
