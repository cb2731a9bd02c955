"""Partial pooling: a client's benefit, drawn towards what clients of its size gain.

One client's test examples may be too few to say anything of it, while the federation as a whole
says a lot. Each client's estimate is shrunk towards a regression on its size, the more the less it
knows itself::

    X = [1, log2 n_train],   β by least squares with weights 1/(v_k + τ²),
    τ²:  Σ_k (b_k − x_k β)² / (v_k + τ²) = K − p,   at least mean(v)/K
    B_k = (K−p−2)/(K−p) · v_k/(v_k + τ²),   w_k = 1 − B_k
    est_k = x_k β + w_k (b_k − x_k β)
    half_k = (t_{K−p}/z) √((cva(B_k/w_k) w_k)² v_k + z² B_k² x_k Cov(β) x_kᵀ)

The interval is that of Armstrong, Kolesár and Plagborg-Møller (*Robust empirical Bayes confidence
intervals*, Econometrica 2022): ``cva`` is the least critical value that keeps the average coverage
whatever the shape of the benefits' distribution, if only its variance is known. The bias of an
estimate has the mean square ``t = B_k/w_k`` in its standard errors, and the worst distribution of a
given mean has two points, of which one is 0 or both are ``t``::

    cva(t) = least χ with  sup_{u ≥ t} (1 − t/u) r(0) + (t/u) r(u) ≤ 1 − level,
    r(u) = Φ(−χ − √u) + Φ(−χ + √u)

The luck of training that all clients of a repeat share is no news of any client, and does not
shrink: the variance of its mean over repeats is added to the interval's square.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from glocal.core.threads import one_thread
from glocal.evaluation.distributions import Array, normal_cdf, normal_quantile, t_quantile

FEWEST = 5
"""Clients below which there is nothing to pool: two are spent on the regression, two on B."""


@dataclass(frozen=True)
class Pooled:
    """Every client's shrunken benefit, and its interval."""

    estimate: Array
    half: Array
    """Half the width of the interval."""
    sd: Array
    """The standard deviation of a client's benefit given the data, if benefits were normal."""


def partial_pooling(
    benefit: Array,
    variance: Array,
    n_train: Array,
    level: float,
    shared: float = 0.0,
    shared_df: float = np.inf,
) -> Pooled:
    """Shrink every client's benefit towards that of clients of its size.

    Args:
        benefit: [clients], each client's own estimate.
        variance: Of these, [clients]: test examples and training.
        n_train: [clients], the size that the regression is on.
        level: The interval's confidence.
        shared: The variance of what all estimates have in common.
        shared_df: Its degrees of freedom.
    """
    clients = len(benefit)
    x = np.stack([np.ones(clients), np.log2(np.maximum(n_train, 1))], 1)
    if np.ptp(x[:, 1]) < 1e-9:
        x = x[:, :1]
    free = clients - x.shape[1]
    tau2 = max(between(benefit, variance, x), float(np.mean(variance)) / clients)
    weight = 1 / (variance + tau2)
    covariance = np.linalg.inv(x.T @ (x * weight[:, None]))
    centre = x @ (covariance @ (x.T @ (weight * benefit)))
    shrunk = (free - 2) / free * variance / (variance + tau2)
    kept = 1 - shrunk
    z = float(normal_quantile((1 + level) / 2))
    of_centre = np.einsum("kp,pq,kq->k", x, covariance, x)
    square = (critical_values(shrunk / kept, level) * kept) ** 2 * variance
    square = square + (z * shrunk) ** 2 * of_centre
    widen = float(t_quantile((1 + level) / 2, free)) / z
    in_common = shared * float(t_quantile((1 + level) / 2, shared_df)) ** 2
    sd = np.sqrt(kept * variance + shrunk**2 * of_centre + shared)
    estimate = centre + kept * (benefit - centre)
    return Pooled(estimate, np.sqrt(widen**2 * square + in_common), sd)


def between(benefit: Array, variance: Array, x: Array) -> float:
    """τ²: the variance of clients' true benefits around the regression (Paule and Mandel 1982)."""

    def excess(tau2: float) -> float:
        weight = 1 / (variance + tau2)
        beta = np.linalg.solve(x.T @ (x * weight[:, None]), x.T @ (weight * benefit))
        return float(weight @ (benefit - x @ beta) ** 2) - float(len(benefit) - x.shape[1])

    if excess(0.0) <= 0:
        return 0.0
    low, high = 0.0, float(np.var(benefit)) + float(np.max(variance))
    while excess(high) > 0:
        high = 2.0 * high
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return 0.5 * (low + high)


def critical_values(t: Array, level: float) -> Array:
    """``cva`` of each, between nodes of a table; beyond it by Chebyshev's bound, its limit."""
    nodes, values = _table(level)
    inside = np.interp(np.log(np.maximum(t, nodes[0])), np.log(nodes), values)
    return np.where(t > nodes[-1], np.sqrt((1 + t) / (1 - level)), inside)


@cache
def _table(level: float) -> tuple[Array, Array]:
    nodes = np.geomspace(1e-4, 1e4, 97)
    with one_thread():
        return nodes, exact_critical_values(nodes, level)


def exact_critical_values(t: Array, level: float) -> Array:
    """``cva`` of each, by its definition."""
    least = float(normal_quantile((1 + level) / 2))
    low, high = np.full_like(t, least), np.sqrt((1 + t) / (1 - level)) + least
    steps = np.concatenate([[0.0], np.geomspace(1e-6, 1.0, 300)])
    u = t[:, None] + steps * ((high + 10) ** 2 + 10 * t)[:, None]
    far = t[:, None] / u
    for _ in range(50):
        chi = (low + high)[:, None] / 2
        near, bias = 2 * normal_cdf(-chi), np.sqrt(u)
        misses = normal_cdf(-chi - bias) + normal_cdf(-chi + bias)
        too_many = ((1 - far) * near + far * misses).max(1) > 1 - level
        low, high = np.where(too_many, chi[:, 0], low), np.where(too_many, high, chi[:, 0])
    return (low + high) / 2
