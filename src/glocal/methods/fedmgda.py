"""FedMGDA+: a direction that no client objects to.

Hu, Shaloudegi, Zhang, Yu: *Federated learning meets multi-objective optimization*, IEEE Trans.
Network Science and Engineering 2022. Of the normalised updates u_i = Δ_i / ‖Δ_i‖ the convex
combination of least norm descends for everybody; the box keeps it near the static coefficients p⁰,

    λ = argmin ‖Σ λ_i u_i‖²  over the simplex with |λ_i − p⁰_i| ≤ ε,     w ← w + η Σ λ_i u_i.

ε = 0 leaves λ = p⁰, and ε = 1 is the min-norm point of them all. p⁰ is n_i/n, or uniform.

Departure: η is ``step`` where that is given; else it is the mean ‖Δ_i‖ of the cohort under p⁰, so
that clients who agree take FedAvg's step, and the step shrinks as training settles. With ``step``
an adaptive server optimiser, which would undo it, is refused.
"""

from __future__ import annotations

import torch
from torch import Tensor

from glocal.core.errors import GlocalError, unknown
from glocal.core.types import Params, Tree, Uplink
from glocal.core.validation import positive
from glocal.methods.support.simplex import lowest
from glocal.slots.weighting import Weighting, by_examples, squared_norms, uniform

STATIC = {"examples": by_examples, "uniform": uniform}


def fedmgda(
    epsilon: float = 0.1, *, step: float | None = None, static: str = "examples"
) -> Weighting:
    """The min-norm mixture of normalised updates within ``epsilon`` of the static weights.

    The step is one that no client of the round loses by, as far as ``epsilon`` allows. It helps
    where clients' updates contradict each other: the worst tenth gained 4 points on digits. It does
    not help where clients are so many that such a step is short.

    Args:
        epsilon: how far weights may be from the static ones, from 0 to 1.
        step: length of the server's step; by default the mean norm of the updates.
        static: the static weights: examples or uniform.
    """
    if not 0 <= epsilon <= 1:
        raise GlocalError(f"epsilon must be from 0 to 1, not {epsilon}.")
    if step is not None:
        positive(step=step)
    if static not in STATIC:
        raise unknown("static", static, STATIC)
    start = STATIC[static]()

    def weigh(state: Tree, uplink: Uplink) -> tuple[Tensor, Tree]:
        p0 = start.weigh({}, uplink)[0].cpu().to(torch.float64)
        norms = squared_norms(uplink).cpu().to(p0).sqrt()
        lam = coefficients(uplink.update, p0 / p0.sum(), epsilon)
        eta = p0 @ norms if step is None else step
        # A client that did not move has no direction, and no share in the step.
        scaled = torch.where(norms > 0, lam * eta / norms, 0.0)
        return scaled.to(uplink.n.device), state

    return Weighting("fedmgda", weigh, own_step="step" if step is not None else None)


def coefficients(update: Params, p0: Tensor, epsilon: float) -> Tensor:
    """``λ``: the min-norm point of the normalised updates in the box around ``p0``."""
    gram = torch.zeros(len(p0), len(p0), dtype=p0.dtype)
    for _, leaf in sorted(update.items()):
        rows = leaf.reshape(len(leaf), -1)
        gram = gram + (rows @ rows.T).cpu().to(gram)
    norms = gram.diagonal().sqrt()
    unit = torch.where(norms > 0, 1 / norms, 0.0)
    gram = gram * unit * unit.unsqueeze(1)
    low, high = (p0 - epsilon).clamp(min=0), (p0 + epsilon).clamp(max=1)
    return lowest(gram, torch.zeros_like(p0), low, high)
