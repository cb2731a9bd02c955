"""The theory of the α-mixture: linear teachers that differ from client to client.

Liang et al., *Think locally, act globally*, 2020, section 4 and appendix A. Client m has the
teacher u_m = v + r_m ∈ ℝ^d, v ~ U[0, 1]^d, r_m ~ N(0, ρ² I), and N examples y = u_m·x + ε,
ε ~ N(0, σ²), x ~ U[−w, w]^d (w = 1). û_m is the least-squares fit to its own examples, v̂ the one to
those of all M clients. The expected error of α û_m + (1 − α) v̂ on new, noiseless examples of the
client is bias² plus variance (theorem 1),

    (1 − α)² ((M−1)/M) (d w²/3) ρ²  +  α² d/(N−d−1) σ² + (1 − α²) d/(MN−d−1) σ²,

least at α* = B / (B + V − C), with B the bias² at α = 0, V = σ² d/(N−d−1) the variance of û_m, and
C = σ² d/(MN−d−1) the variance of v̂, which is its covariance with û_m, too. For many examples α* is
ρ² / (ρ² + 3σ²/(w²N)).

Departures: theorem 2 as printed has ρ² where this has (d w²/3) ρ², and α* = ρ² / (ρ² + (d/N) σ²).
The bias is ρ² tr E[xxᵀ], which is ρ² only where E[xxᵀ] = I/d (w = √(3/d)), and E[xxᵀ] = I/3 for the
paper's x ~ U[−1, 1]: with its d = 20 the printed bias² is too small by a factor of 6.7, and so at
ρ = 0.06 the local model is slightly ahead of the global one, against the caption of figure 4.
:func:`printed_error` is the form as printed, for comparison. It also has d/N for d/(N−d−1), which
is how large tr E[(XᵀX)⁻¹ E[xxᵀ]] is for Gaussian inputs; for uniform ones it is smaller by 1.2/N of
itself, and the bias² larger by (d − 0.2)/(MN), both to first order, which are left out here.
"""

from __future__ import annotations

from dataclasses import dataclass

from glocal.core.errors import GlocalError
from glocal.core.validation import integer, not_negative, positive

LARGEST = 50_000_000
"""Numbers in the inputs of one federation."""


@dataclass(frozen=True)
class Teachers:
    """The paper's setting, but for ``rho`` (it has .5, .1, .06 and .02)."""

    rho: float
    sigma: float = 1.5
    features: int = 20
    clients: int = 100
    examples: int = 2000
    tests: int = 1000
    width: float = 1.0

    def __post_init__(self) -> None:
        not_negative(rho=self.rho)
        positive(sigma=self.sigma, width=self.width)
        integer(self.features, "features", 1)
        integer(self.clients, "clients", 2)
        integer(self.tests, "tests", 1)
        if integer(self.examples, "examples", 1) < self.features + 2:
            raise GlocalError(
                f"examples must be {self.features + 2} or more, two more than the "
                f"{self.features} features, not {self.examples}: with fewer, the expected error of "
                "least squares is infinite."
            )
        if self.clients * max(self.examples, self.tests) * self.features > LARGEST:
            raise GlocalError(
                f"clients × examples × features must be {LARGEST // 10**6} million or less, and "
                "so with tests: choose fewer."
            )


def squared_bias(t: Teachers) -> float:
    """The squared bias of the global model, ρ² (M−1)/M tr E[xxᵀ]."""
    return t.rho**2 * (t.clients - 1) / t.clients * t.features * t.width**2 / 3


def local_variance(t: Teachers) -> float:
    """The variance of a client's own model's predictions over the noise."""
    return t.sigma**2 * t.features / (t.examples - t.features - 1)


def global_variance(t: Teachers) -> float:
    """The variance of the global model's predictions, and its covariance with the client's own."""
    return t.sigma**2 * t.features / (t.clients * t.examples - t.features - 1)


def bias_and_variance(alpha: float, t: Teachers) -> tuple[float, float]:
    """The squared bias and the variance of the mixture; their sum is its expected error."""
    own, together = local_variance(t), global_variance(t)
    variance = alpha**2 * own + (2 * alpha * (1 - alpha) + (1 - alpha) ** 2) * together
    return (1 - alpha) ** 2 * squared_bias(t), variance


def error(alpha: float, t: Teachers) -> float:
    """The expected error of the mixture."""
    return sum(bias_and_variance(alpha, t))


def best_alpha(t: Teachers) -> float:
    """Where the expected error is least."""
    bias = squared_bias(t)
    return bias / (bias + local_variance(t) - global_variance(t))


def printed_error(alpha: float, t: Teachers) -> float:
    """Theorem 2 as printed, right only where E[xxᵀ] = I/d, and for N far above d."""
    noise = alpha**2 + (1 - alpha**2) / t.clients
    device = (1 - alpha) ** 2 * (t.clients - 1) / t.clients
    return t.sigma**2 * t.features / t.examples * noise + device * t.rho**2


def printed_best_alpha(t: Teachers) -> float:
    """Corollary 1 as printed."""
    return t.rho**2 / (t.rho**2 + t.features / t.examples * t.sigma**2)
