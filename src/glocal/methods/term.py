"""TERM: a client with a larger loss counts more, exponentially.

Li, Beirami, Sanjabi, Smith: *Tilted empirical risk minimization*, ICLR 2021. With F_i the received
model's loss at client i,

    p_i ∝ n_i exp(λ F_i)

and λ → 0 is FedAvg.
"""

from __future__ import annotations

from torch import Tensor

from glocal.core.types import Tree, Uplink
from glocal.core.validation import not_negative
from glocal.slots.weighting import Weighting, losses, tilted


def term(lam: float = 1.0) -> Weighting:
    """Weights by ``n_i exp(lam · F_i)``.

    Clients with larger losses count more, exponentially. It helps where some are served badly: the
    worst tenth gained 5 points on digits, and no loss of the mean was shown. It does not help where
    a loss is large because labels are wrong.

    Args:
        lam: tilt towards clients with a high loss; 0: none.
    """
    not_negative(lam=lam)

    def weigh(state: Tree, uplink: Uplink) -> tuple[Tensor, Tree]:
        return tilted(uplink, lam * losses(uplink)), state

    return Weighting("term", weigh, needs_loss=True)
