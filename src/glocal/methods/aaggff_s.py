"""AAggFF-S: fair aggregation as online Newton steps, for few clients that are always there.

Hahn, Kim, Lee: *Pursuing overall welfare in federated learning through sequential decision making*,
ICML 2024. The received model's losses become responses r
(:mod:`glocal.methods.support.loss_responses`). A decision p on the simplex suffers −log(1 + ⟨p,
r⟩), with gradient g = −r / (1 + ⟨p, r⟩); p starts uniform, and the new p aggregates the same round.

All clients in every round; responses from C1 = 0 to C2 = 1/K (``c1``, ``c2``: others),
L = C2/(1 + C1), α = 4KL, β = 1/(4L):

    p⁺ = argmin_Δ  ⟨Σg, p⟩ + (α/2)‖p‖² + (β/2) Σ_τ ⟨g_τ, p − p_τ⟩²

solved exactly. The regret stays below 2LK (1 + log(1 + T/16K)). ``alpha`` and ``beta`` are the
parameters of the ``transform``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from glocal.core.types import Tree, Uplink
from glocal.methods.support.loss_responses import Responses, with_responses
from glocal.methods.support.simplex import lowest
from glocal.slots.weighting import Setting, Weighting, everybody, losses, renormalised


@with_responses
def aaggff_s(given: Responses) -> Weighting:
    """Online Newton steps on the simplex: for few clients, all of them in every round.

    Clients with larger losses count more, by a rule whose regret is bounded. It helps where some of
    few clients that are always there are served badly: on digits the worst tenth gained 8 points
    and no loss of the mean was shown. It does not help where clients are sampled or away, which is
    an error.
    """

    def init(setting: Setting) -> Tree:
        everybody(setting, "aaggff-s", "aaggff-d")
        given.high(1 / setting.clients)  # which refuses a range that is none
        return newton_start(setting.clients)

    def weigh(state: Tree, uplink: Uplink) -> tuple[Tensor, Tree]:
        ids = uplink.ids.cpu()
        K = len(state["p"])
        high = given.high(1 / K)
        seen = given.of(losses(uplink), high)
        # Whoever's update was left out is taken for an average client.
        r = seen.mean().expand(K).index_copy(0, ids, seen)
        state = newton_step(state, r, high / (1 + given.low))
        return standing(state, ids).to(uplink.n.device), state

    def standing(state: Tree, ids: Tensor) -> Tensor:
        return renormalised(state["p"], ids)

    return Weighting("aaggff-s", weigh, init, needs_loss=True, standing=standing)


def newton_start(K: int) -> Tree:
    """Before the first round: p, and the sums over rounds of g, (gᵀp) g and g gᵀ."""
    zero = torch.zeros(K, dtype=torch.float64)
    return {"p": zero + 1 / K, "g": zero, "centre": zero, "gg": torch.zeros(K, K).to(zero)}


def newton_step(state: Tree, r: Tensor, L: float | None = None) -> Tree:
    """One round of AAggFF-S; ``L`` = C2/(1 + C1) is by default that of responses from 0 to 1/K."""
    p, K = state["p"], len(r)
    L = 1 / K if L is None else L
    alpha, beta = 4 * K * L, 1 / (4 * L)
    g = -r / (1 + p @ r)
    total, centre = state["g"] + g, state["centre"] + (g @ p) * g
    gg = state["gg"] + torch.outer(g, g)
    matrix = alpha * torch.eye(K, dtype=r.dtype) + beta * gg
    # Without the centre the step would pull towards responses of zero, not of past decisions.
    p = lowest(matrix, total - beta * centre)
    return {"p": p, "g": total, "centre": centre, "gg": gg}
