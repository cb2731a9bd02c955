"""The moderated t interval: a client's benefit with the luck of training in it.

A client's benefit ``b_kr`` differs from repeat to repeat, since its test examples do, and since
both models are trained anew. Three or five repeats say little of one client's variance, but a
federation has many clients. Smyth (*Linear models and empirical Bayes methods for assessing
differential expression in microarray experiments*, Statistical Applications in Genetics and
Molecular Biology 2004) takes the ratio of a client's variance over repeats ``s²_k`` to the variance
``v_k`` that its test examples alone would give as drawn from one scaled inverse χ² distribution of
``d0`` degrees of freedom around ``c``, and estimates both from the moments of its logarithm::

    z_k = ln(s²_k / v_k) − ψ(ν/2) + ln(ν/2),                ν = R − 1,  R repeats
    ψ'(d0/2) = Var_k z_k − ψ'(ν/2),                         d0 = ∞ if that is not positive
    c = exp(mean_k z_k + ψ(d0/2) − ln(d0/2))
    s̃²_k = max((d0 c v_k + ν s²_k)/(d0 + ν), (1 − q_k) v_k) + g
    mean_r b_kr ± t_f · √(s̃²_k/R + v_k (o_k − (1 − q_k)/R)),   q_k = (R o_k − 1)/(R − 1)

Three things are added to Smyth's.

- Where one trained model serves all, its luck is common to the clients of a repeat. So ``s²_k`` is
  of what is left when the mean ``m_r`` over clients is taken off, and the variance in common has a
  term of its own, of which only ``ν`` differences were seen. Degrees of freedom of the whole are
  Satterthwaite's (*An approximate distribution of estimates of variance components*, Biometrics
  Bulletin 1946), and of the rest no more than the ``K`` clients' differences::

      s²_k = K/(K − 1) Var_r(b_kr − m_r),     g = max(Var_r(m_r) − mean_k s²_k / K, 0)
      1/f = a²/ν + (1 − a)²/min(d0 + ν, K ν),     a = g/s̃²_k

- ``o_k`` is the share of ``v_k`` that is left in the mean over repeats: ``1/R`` while every repeat
  tests other examples, and more where examples come back (a sixth repeat of five folds, one split
  for all repeats), since their difficulty does not average out. Two repeats then share ``q_k`` of
  their tests, and the variance over repeats shows the rest of ``v_k`` alone: what it cannot show is
  added.
- No variance is below that of the test examples alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glocal.evaluation.distributions import Array, digamma, polygamma, t_quantile, t_upper

_INFINITE = 1e6
"""Degrees of freedom at which a t distribution is a normal one."""


@dataclass(frozen=True)
class Moderated:
    """Every client's mean benefit over repeats, and how sure it is."""

    mean: Array
    variance: Array
    """Of that mean, [clients]; NaN where a client had nothing to test."""
    df: Array
    """Degrees of freedom of the t distribution, [clients]."""
    once: Array
    """``s̃²_k``: the variance over repeats of a client's benefit, [clients]."""
    shared: float
    """``g``: the variance of what all clients of a repeat have in common."""
    together: float
    """The variance over repeats of the mean over clients, ``Var_r(mean_k b_kr)``."""

    def interval(self, level: float) -> tuple[Array, Array]:
        """The ends, [clients] each."""
        half = t_quantile((1 + level) / 2, self.df) * np.sqrt(self.variance)
        return self.mean - half, self.mean + half

    def p_not_above(self) -> Array:
        """One-sided p-values of "the benefit is at most 0"."""
        return t_upper(self.mean / np.sqrt(np.maximum(self.variance, 1e-300)), self.df)


def moderated(benefit: Array, noise: Array, overlap: Array) -> Moderated:
    """The moderated t of every client.

    Args:
        benefit: [repeats, clients]; NaN where a client had nothing to test.
        noise: The variance of each benefit that its test examples alone give; of the same shape.
        overlap: [clients], ``o_k``.
    """
    tested = np.isfinite(benefit)
    repeats = tested.sum(0)
    clients, nu = int((repeats > 0).sum()), np.maximum(repeats - 1.0, 1.0)
    mean, v = _mean(benefit, tested, 0), _mean(noise, tested, 0)
    in_each = _mean(benefit, tested, 1)
    together = float(np.nanvar(in_each, ddof=1)) if np.isfinite(in_each).sum() > 1 else 0.0
    apart = np.where(tested, benefit - mean - (in_each - np.nanmean(in_each))[:, None], 0.0)
    spread = (apart**2).sum(0) / nu * clients / max(clients - 1, 1)
    shared = max(together - float(np.mean(spread[repeats > 0])) / max(clients, 1), 0.0)
    told = (repeats > 1) & (v > 0)
    d0, c = _INFINITE, 1.0
    if told.any():
        half = nu[told] / 2
        z = np.log(np.maximum(spread[told] / v[told], 1e-3)) - digamma(half) + np.log(half)
        excess = (np.var(z, ddof=1) if len(z) > 1 else 0.0) - polygamma(1, half).mean()
        c = float(np.exp(z.mean()))
        if excess > 0:
            d0 = 2 * inverse_trigamma(excess)
            c *= float(np.exp(digamma(d0 / 2) - np.log(d0 / 2)))
    seen = 1 - np.clip((repeats * overlap - 1) / nu, 0, 1)  # of the noise, in the spread
    once = np.maximum((d0 * c * v + nu * spread) / (d0 + nu), seen * v) + shared
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = once / repeats + v * np.maximum(overlap - seen / repeats, 0)
        share = np.minimum(np.where(once > 0, shared / once, 0.0), 1.0)
        df = 1 / (share**2 / nu + (1 - share) ** 2 / np.minimum(d0 + nu, clients * nu))
    return Moderated(mean, variance, df, once, shared, together)


def _mean(values: Array, there: NDArray[np.bool_], axis: int) -> Array:
    """The mean of what is there; NaN where nothing is."""
    count = there.sum(axis)
    total: Array = np.where(there, values, 0.0).sum(axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def inverse_trigamma(y: float) -> float:
    """The ``x`` at which ψ'(x) = y, by Newton's steps on 1/ψ' (Smyth 2004, appendix)."""
    if y > 1e7:
        return float(1 / np.sqrt(y))
    if y < 1e-6:
        return float(1 / y)
    x = 0.5 + 1 / y
    for _ in range(50):
        slope = float(polygamma(1, x))
        step = slope * (1 - slope / y) / float(polygamma(2, x))
        x += step
        if -step / x < 1e-10:
            break
    return x
