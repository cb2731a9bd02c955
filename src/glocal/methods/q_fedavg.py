"""q-FedAvg: a client with a larger loss counts more, by a power of it.

Li, Sanjabi, Beirami, Smith: *Fair resource allocation in federated learning*, ICLR 2020. With F_i
the received model's loss at client i,

    p_i ∝ n_i F_i^q

and q = 0 is FedAvg. The original's own step is another thing: with Δ_i = L (w − w_i) and L = 1/lr,

    w ← w − Σ F_i^q Δ_i / Σ (q F_i^{q−1} ‖Δ_i‖² + L F_i^q)

whose length follows from an estimate of the Lipschitz constant, and whose q = 0 is the *uniform*
mean. Give ``lipschitz`` = L (10 for clients that train with lr=0.1) to have that. An adaptive
server optimiser, which would undo the step's length, is then refused.
"""

from __future__ import annotations

import torch
from torch import Tensor

from glocal.core.types import Tree, Uplink
from glocal.core.validation import not_negative, positive
from glocal.slots.weighting import Weighting, losses, squared_norms, tilted

TINY = 1e-10
"""Added to losses by the original's step, so that a loss of zero has powers below zero."""


def q_fedavg(q: float = 1.0, *, lipschitz: float | None = None) -> Weighting:
    """Weights by ``n_i F_i^q``; with ``lipschitz`` the original's step of its own length.

    Clients with larger losses count more, by a power. It helps where some are served badly, also
    where clients are sampled: the worst tenth gained 6 points on digits, and no loss of the mean
    was shown. It does not help where a loss is large because labels are wrong.

    Args:
        q: how much more clients with a high loss count; 0: not at all.
        lipschitz: the original's constant L, with which the step has a length of its own.
    """
    not_negative(q=q)
    if lipschitz is not None:
        return _original(q, lipschitz)

    def weigh(state: Tree, uplink: Uplink) -> tuple[Tensor, Tree]:
        F = losses(uplink)
        return tilted(uplink, torch.xlogy(q, F)), state

    return Weighting("q-fedavg", weigh, needs_loss=True)


def _original(q: float, L: float) -> Weighting:
    positive(lipschitz=L)

    def weigh(state: Tree, uplink: Uplink) -> tuple[Tensor, Tree]:
        F = losses(uplink) + TINY
        delta2 = L**2 * squared_norms(uplink).cpu().to(F)
        h = q * F ** (q - 1) * delta2 + L * F**q
        return (L * F**q / h.sum()).to(uplink.n.device), state

    return Weighting("q-fedavg", weigh, needs_loss=True, own_step="lipschitz")
