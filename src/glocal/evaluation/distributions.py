"""Student's t, the normal distribution and ψ with torch and numpy alone.

The distribution function of Student's t is an incomplete beta function, ``P(|T| > t) =
I_{f/(f+t²)}(f/2, 1/2)``, which is evaluated by its continued fraction (Press et al., *Numerical
recipes*, section 6.4: Lentz's method). Its quantile starts from the first terms of Cornish and
Fisher's expansion and is made exact by Newton's steps.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

NORMAL = 1e6
"""Degrees of freedom from which on Student's t is a normal distribution."""

_TINY = 1e-300


def normal_cdf(x: ArrayLike) -> Array:
    """Φ."""
    return np.asarray(torch.special.ndtr(_tensor(x)))


def normal_quantile(p: ArrayLike) -> Array:
    """The inverse of Φ."""
    return np.asarray(torch.special.ndtri(_tensor(p)))


def digamma(x: ArrayLike) -> Array:
    """ψ, the derivative of ln Γ."""
    return np.asarray(torch.special.digamma(_tensor(x)))


def polygamma(n: int, x: ArrayLike) -> Array:
    """The n-th derivative of ψ."""
    return np.asarray(torch.special.polygamma(n, _tensor(x)))


def t_upper(t: ArrayLike, df: ArrayLike) -> Array:
    """P(T > t) of Student's t with ``df`` degrees of freedom; NaN where either is."""
    t, df = np.broadcast_arrays(np.asarray(t, float), np.asarray(df, float))
    f = np.clip(df, 1e-3, NORMAL)
    with np.errstate(over="ignore", invalid="ignore"):
        both = _beta_tail(np.minimum(np.abs(t), 1e150), f)
        upper = np.where(t > 0, both / 2, 1 - both / 2)
        upper = np.where(df >= NORMAL, normal_cdf(-t), upper)
    return np.where(np.isnan(t) | np.isnan(df), np.nan, upper)


def t_quantile(p: float, df: ArrayLike) -> Array:
    """The value that Student's t is below with probability ``p``."""
    df = np.asarray(df, float)
    if p < 0.5:
        return -t_quantile(1 - p, df)
    z = float(normal_quantile(p))
    f = np.clip(df, 1e-3, NORMAL)
    low = np.full_like(f, z)  # the tails of t are heavier than the normal ones
    high = np.maximum(2 * z, 1.0) * np.ones_like(f)
    while np.any(short := t_upper(high, f) > 1 - p):
        high = np.where(short, high * 2, high)
    t = np.clip(z + (z**3 + z) / (4 * f), low, high)
    for _ in range(100):
        above = t_upper(t, f) - (1 - p)
        low, high = np.where(above > 0, t, low), np.where(above > 0, high, t)
        new = t + above / _density(t, f)
        new = np.where((new >= low) & (new <= high), new, (low + high) / 2)
        if np.all(np.abs(new - t) <= 1e-11 * np.abs(t)):
            break
        t = new
    return np.where(np.isnan(df), np.nan, np.where(df >= NORMAL, z, t))


def _density(t: Array, f: Array) -> Array:
    log = _lgamma((f + 1) / 2) - _lgamma(f / 2) - 0.5 * np.log(f * np.pi)
    return np.asarray(np.exp(log - (f + 1) / 2 * np.log1p(t * t / f)))


def _beta_tail(t: Array, f: Array) -> Array:
    """I_x(f/2, 1/2) at x = f/(f + t²); by the symmetry of I where its fraction is slow."""
    a, b = f / 2, np.full_like(f, 0.5)
    x, rest = f / (f + t * t), t * t / (f + t * t)
    log = _lgamma(a + b) - _lgamma(a) - _lgamma(b)
    swap = x > (a + 1) / (a + b + 2)
    a, b = np.where(swap, b, a), np.where(swap, a, b)
    x, rest = np.where(swap, rest, x), np.where(swap, x, rest)
    front = np.exp(log + a * np.log(np.maximum(x, _TINY)) + b * np.log(np.maximum(rest, _TINY)))
    found = np.where(x > 0, front * _fraction(x, a, b) / a, 0.0)
    return np.where(swap, 1 - found, found)


def _fraction(x: Array, a: Array, b: Array) -> Array:
    """The continued fraction of the incomplete beta function."""
    c = np.ones_like(x)
    d = 1 / _away(1 - (a + b) * x / (a + 1))
    h = d.copy()
    for m in range(1, 1000):
        change = np.ones_like(x)
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _away(1 + term * d)
            c = _away(1 + term / c)
            change = c * d
            h = h * change
        if np.all(np.abs(change - 1) < 1e-15):
            break
    return h


def _away(x: Array) -> Array:
    """Not zero."""
    return np.where(np.abs(x) < _TINY, _TINY, x)


def _lgamma(x: Array) -> Array:
    return np.asarray(torch.lgamma(_tensor(x)))


def _tensor(x: ArrayLike) -> torch.Tensor:
    return torch.from_numpy(np.asarray(x, dtype=np.float64).copy())
