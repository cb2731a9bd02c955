"""The simplex of weights: the nearest point of it, and the lowest point of a quadratic on it."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from glocal.core.errors import GlocalError

STEPS = 60
DELTA = 1e-8
"""The weight of the squared norm, once the quadratic is scaled to numbers around 1: it must be
far above the rounding of gradients (1e-16) and far below what tells one point from a lower one."""
SMALL = 1e-20
"""Complementarity at which the quadratic is solved: far below ``DELTA``, whose prices count."""


def project(v: Tensor) -> Tensor:
    """The point of the simplex nearest to ``v``, along the last dimension, by one sort.

    Held, Wolfe, Crowder: *Validation of subgradient optimization*, Mathematical Programming 1974:
    ``p = max(v − θ, 0)`` with the θ that makes it sum to one.
    """
    down = v.sort(-1, descending=True).values
    counts = torch.arange(1, v.shape[-1] + 1, device=v.device, dtype=v.dtype)
    above = (down.cumsum(-1) - 1) / counts
    theta = torch.take_along_dim(above, (down > above).sum(-1, keepdim=True) - 1, -1)
    return (v - theta).clamp(min=0)


def lowest(
    matrix: Tensor, linear: Tensor, low: Tensor | None = None, high: Tensor | None = None
) -> Tensor:
    """``argmin ½ pᵀQp + cᵀp`` over the p that sum to one, with ``low ≤ p ≤ high``.

    A primal-dual interior point with Mehrotra's corrector (*On the implementation of a primal-dual
    interior point method*, SIAM J. Optim. 1992), in double precision. Q must be symmetric and
    positive semi-definite; it may be singular. Of many lowest points the one of least norm (the
    most even weights) is found, to about 1e-6: ``DELTA / 2 ‖p‖²`` is added to the scaled
    quadratic (Tikhonov), whose lowest point is then unique. The answer depends neither on the
    order of clients nor on how a processor rounds. Without bounds, p is 0 or more.
    """
    c = linear.to(torch.float64)
    Q = matrix.to(c)
    low = torch.zeros_like(c) if low is None else low.to(c)
    high = low + (1 - low.sum()) + 1 if high is None else high.to(c)
    if not bool(Q.isfinite().all() and c.isfinite().all()):
        raise GlocalError("the weights cannot be decided: a loss or an update is not finite.")
    if float(low.sum()) > 1 + 1e-9 or float(high.sum()) < 1 - 1e-9 or bool((low > high).any()):
        raise GlocalError("no weights between these bounds sum to one: widen them.")
    free = high - low > 1e-12
    room = (high - low)[free].sum()
    left = 1 - low.sum()
    if not bool(free.any()) or float(left) <= 1e-12 or float(room - left) <= 1e-12:
        return low + (high - low) * (left / room if float(room) > 0 else 0.0)
    # Where bounds meet there is nothing to choose; the rest is solved among itself.
    p, fixed = low.clone(), ~free
    c = c[free] + Q[free][:, fixed] @ low[fixed]
    p[free] = _interior(Q[free][:, free], c, low[free], high[free], 1 - low[fixed].sum())
    return p


def _interior(Q: Tensor, c: Tensor, low: Tensor, high: Tensor, total: Tensor) -> Tensor:
    size = max(float(Q.abs().max()), float(c.abs().max())) or 1.0
    Q, c = Q / size + DELTA * torch.eye(len(c), dtype=c.dtype, device=c.device), c / size
    share = (total - low.sum()) / (high - low).sum()
    s, t = (high - low) * share, (high - low) * (1 - share)  # the distances from both bounds
    p, y = low + s, c.new_zeros(())
    z, u = torch.ones_like(c), torch.ones_like(c)  # prices of the bounds below and above
    for _ in range(STEPS):
        dual = Q @ p + c + y - z + u
        mu = (s @ z + t @ u) / (2 * len(p))
        if float(mu) < SMALL and float(dual.abs().max()) < 1e-12:
            break
        factor, failed = torch.linalg.cholesky_ex(Q + torch.diag(z / s + u / t))
        if bool(failed):
            break  # as near as double precision comes
        newton = partial(_newton, factor, dual, p.sum() - total, s, t, z, u)
        dp, _, dz, du = newton(torch.zeros_like(c), torch.zeros_like(c))
        a, b = _length(s, dp, t, -dp), _length(z, dz, u, du)
        after = ((s + a * dp) @ (z + b * dz) + (t - a * dp) @ (u + b * du)) / (2 * len(p))
        goal = (after / mu) ** 3 * mu
        dp, dy, dz, du = newton(goal - dp * dz, goal + dp * du)
        a, b = 0.995 * _length(s, dp, t, -dp), 0.995 * _length(z, dz, u, du)
        p, s, t = p + a * dp, s + a * dp, t - a * dp  # s and t are smaller than p can tell
        y, z, u = y + b * dy, z + b * dz, u + b * du
    p = torch.minimum(torch.maximum(p, low), high)
    return p * (total / p.sum())


def _newton(
    factor: Tensor,
    dual: Tensor,
    surplus: Tensor,
    s: Tensor,
    t: Tensor,
    z: Tensor,
    u: Tensor,
    below: Tensor,
    above: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Newton's step towards the products ``s z = below`` and ``t u = above``."""
    right = -dual + below / s - z - above / t + u
    solved = torch.cholesky_solve(torch.stack([right, torch.ones_like(right)], 1), factor)
    way, column = solved.unbind(1)
    dy = (way.sum() + surplus) / column.sum()
    dp = way - dy * column
    return dp, dy, below / s - z - z / s * dp, above / t - u + u / t * dp


def _length(a: Tensor, da: Tensor, b: Tensor, db: Tensor) -> Tensor:
    """The longest step up to 1 that keeps both positive."""
    x, dx = torch.cat([a, b]), torch.cat([da, db])
    return torch.where(dx < 0, -x / dx, torch.inf).min().clamp(max=1.0)
