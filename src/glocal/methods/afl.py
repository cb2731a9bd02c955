"""AFL: the model for the worst mixture of clients.

Mohri, Sivek, Suresh: *Agnostic federated learning*, ICML 2019. The server ascends on the weights
while clients descend on the loss,

    p ← Π_Δ (p + γ F)

with F_i the received model's loss at client i, and Π_Δ the projection on the simplex. Both step
from where (w, p) stands: a round is aggregated with the p before it, and the new p is for the next.
p starts uniform. It needs all clients in every round.
"""

from __future__ import annotations

import torch
from torch import Tensor

from glocal.core.types import Tree, Uplink
from glocal.core.validation import positive
from glocal.methods.support.simplex import project
from glocal.slots.weighting import Setting, Weighting, everybody, losses, renormalised


def afl(rate: float = 0.1) -> Weighting:
    """Weights that climb the losses in steps of ``rate``.

    Clients with larger losses count more and more, until the worst mixture of clients is served
    best. It helps where the worst client is what counts and all take part in every round: the worst
    tenth gained 7 points on digits. It does not help where a client has hopeless data, which then
    takes all the weight.

    Args:
        rate: step of the weights up the losses.
    """
    positive(rate=rate)

    def init(setting: Setting) -> Tree:
        everybody(setting, "afl", "aaggff-d")
        return {"p": torch.full((setting.clients,), 1 / setting.clients, dtype=torch.float64)}

    def weigh(state: Tree, uplink: Uplink) -> tuple[Tensor, Tree]:
        ids = uplink.ids.cpu()
        climbed = state["p"].index_add(0, ids, losses(uplink), alpha=rate)
        # The same point is nearest without the largest, and large numbers lose no digits.
        p = project(climbed - climbed.max())
        return standing(state, ids).to(uplink.n.device), {"p": p}

    def standing(state: Tree, ids: Tensor) -> Tensor:
        return renormalised(state["p"], ids)

    return Weighting("afl", weigh, init, needs_loss=True, standing=standing)
