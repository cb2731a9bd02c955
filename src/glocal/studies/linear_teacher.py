"""The theory of the α-interpolation: linear teachers that differ from device to device.

Liang et al., *Think locally, act globally*, 2020, section 4 and theorem 2. Device m has the teacher
u_m = v + r_m ∈ ℝ^d, r_m ~ N(0, ρ² I), and N examples y = u_m·x + ε, ε ~ N(0, σ²), x ~ U[−1, 1]^d.
û_m is the least-squares fit to its own data, v̂ the one to all M devices'. The expected error of
α û_m + (1 − α) v̂ on new, noiseless examples of the device is

    α² (d/N) σ² + (1 − α)² ((M−1)/M) (d/3) ρ² + (1 − α²) (d/(MN)) σ²,

least at α* = ρ² / (ρ² + 3σ²/N).

Departures: the printed form has ρ² where this has (d/3) ρ², and α* = ρ² / (ρ² + (d/N) σ²): the
device term is ρ² tr E[xxᵀ], which is ρ² only where E[xxᵀ] = I/d, and E[xxᵀ] = I/3 for x ~ U[−1, 1].
With the paper's d = 20 the printed device term is too small by a factor of 6.7, and so at ρ = 0.06
the local model is slightly ahead of the global one, against the caption of figure 2(b).
:func:`printed_error` is the form as printed, for comparison.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from glocal.core import rng


@dataclass(frozen=True)
class Teachers:
    """The paper's setting, but for ``rho`` (it has .5, .1, .06 and .02)."""

    rho: float
    sigma: float = 1.5
    d: int = 20
    M: int = 100
    N: int = 2000


def error(alpha: float, t: Teachers) -> float:
    """The expected error of the interpolation."""
    noise = alpha**2 * t.d / t.N + (1 - alpha**2) * t.d / (t.M * t.N)
    return t.sigma**2 * noise + (1 - alpha) ** 2 * (t.M - 1) / t.M * t.d / 3 * t.rho**2


def printed_error(alpha: float, t: Teachers) -> float:
    """Theorem 2 as printed, right only where E[xxᵀ] = I/d."""
    noise = alpha**2 * t.d / t.N + (1 - alpha**2) * t.d / (t.M * t.N)
    return t.sigma**2 * noise + (1 - alpha) ** 2 * (t.M - 1) / t.M * t.rho**2


def best_alpha(t: Teachers) -> float:
    """Where the expected error is least."""
    return t.rho**2 / (t.rho**2 + 3 * t.sigma**2 / t.N)


def simulated(t: Teachers, grid: Tensor, seed: int) -> tuple[Tensor, float]:
    """The error at every α of the grid, and the α where it is least, of one draw of everything.

    Means over devices; over new examples the expectation is taken exactly, ‖w − u_m‖² / 3.
    """
    v, r, x, e = (rng.fold(rng.key(seed), i) for i in range(4))
    teachers = rng.uniform(v, (t.d,)).double() + t.rho * rng.normal(r, (t.M, t.d)).double()
    inputs = 2 * rng.uniform(x, (t.M, t.N, t.d)).double() - 1
    y = torch.einsum("mnd,md->mn", inputs, teachers) + t.sigma * rng.normal(e, (t.M, t.N)).double()
    gram = inputs.transpose(1, 2) @ inputs
    moment = (inputs.transpose(1, 2) @ y.unsqueeze(-1)).squeeze(-1)
    local = torch.linalg.solve(gram, moment)
    together = torch.linalg.solve(gram.sum(0), moment.sum(0))
    # α û + (1 − α) v̂ − u = α (û − v̂) + (v̂ − u): the error is a parabola in α.
    a, b = local - together, together - teachers
    aa, ab, bb = ((p * q).sum(-1).mean() / 3 for p, q in ((a, a), (a, b), (b, b)))
    return grid**2 * aa + 2 * grid * ab + bb, float(-ab / aa)
