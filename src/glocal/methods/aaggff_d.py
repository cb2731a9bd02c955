"""AAggFF-D: fair aggregation as entropic steps, for any number of clients, sampled.

Hahn, Kim, Lee: *Pursuing overall welfare in federated learning through sequential decision making*,
ICML 2024. The received model's losses become responses r
(:mod:`glocal.methods.support.loss_responses`). A decision p on the simplex suffers −log(1 + ⟨p,
r⟩), with gradient g = −r / (1 + ⟨p, r⟩); p starts uniform, and the new p aggregates the same round.

Clients are sampled with probability C; responses from 0 to C2 = C, L̆ = C + 2. Who was absent is
filled in by a doubly robust estimate with the sample's mean r̄, the gradient is linearised there,
and there is a closed form in O(K):

    r̆_i = r̄ + 1[i∈S] (r_i − r̄)/C,    ğ = −r̆/(1 + r̄) + r̄ (⟨p, r̆⟩ − r̄)/(1 + r̄)²,
    p⁺ ∝ exp(−√(log K) Σğ / (L̆ √(t+1))).

The new p is renormalised over the sample. With everybody present (C = 1) nothing is estimated: the
gradient is g itself, with L = 1 in the place of L̆, and the regret stays below 2L √(T log K). With
sampling it stays, in the mean over draws, below 2L̆ √(T log K).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from glocal.core.types import Tree, Uplink
from glocal.methods.support.loss_responses import check_transform, responses
from glocal.slots.weighting import Setting, Weighting, losses, renormalised


def aaggff_d(transform: str = "normal") -> Weighting:
    """Entropic steps in closed form: for any number of clients, sampled."""
    check_transform(transform)

    def init(setting: Setting) -> Tree:
        return entropic_start(setting.clients, setting.fraction)

    def weigh(state: Tree, uplink: Uplink) -> tuple[Tensor, Tree]:
        ids = uplink.ids.cpu()
        r = responses(losses(uplink), transform, float(state["sampled"]))
        state = entropic_step(state, ids, r)
        return standing(state, ids).to(uplink.n.device), state

    def standing(state: Tree, ids: Tensor) -> Tensor:
        return renormalised(entropic_decision(state), ids)

    return Weighting("aaggff-d", weigh, init, needs_loss=True, standing=standing)


def entropic_start(K: int, sampled: float) -> Tree:
    """Before the first round: the sum of gradients, rounds seen, and the sampling probability."""
    zero = torch.zeros(K, dtype=torch.float64)
    return {"g": zero, "rounds": zero.new_zeros(()), "sampled": zero.new_tensor(sampled)}


def entropic_decision(state: Tree) -> Tensor:
    """``p`` as it stands, over all K clients."""
    g, C = state["g"], float(state["sampled"])
    slope = math.sqrt(math.log(len(g))) / (lipschitz(C) * math.sqrt(float(state["rounds"]) + 1))
    return torch.softmax(-slope * g, 0)


def entropic_step(state: Tree, ids: Tensor, r: Tensor) -> Tree:
    """One round of AAggFF-D, on responses from 0 to C of the clients ``ids`` that took part."""
    C = float(state["sampled"])
    mean = r.mean()
    filled = doubly_robust(r, ids, len(state["g"]), C, mean)
    p = entropic_decision(state)
    if C == 1:  # nothing was estimated, so there is nothing to linearise for
        g = -filled / (1 + p @ filled)
    else:
        g = -filled / (1 + mean) + mean * (p @ filled - mean) / (1 + mean) ** 2
    return {**state, "g": state["g"] + g, "rounds": state["rounds"] + 1}


def doubly_robust(r: Tensor, ids: Tensor, K: int, C: float, imputed: Tensor) -> Tensor:
    """Everybody's responses from those seen: ``imputed + 1[i∈S] (r_i − imputed)/C``.

    Unbiased if ``imputed`` does not come from the same draw. With the mean of the m that were drawn
    without replacement the bias is ``−(r_i − mean of all) (K − m)/(m (K − 1))``.
    """
    filled = imputed.expand(K).clone()
    filled[ids] += (r - imputed) / C
    return filled


def lipschitz(C: float) -> float:
    """The largest entry a gradient can have, for responses from 0 to C: ``L̆``; of C = 1, L = 1."""
    return C + 2 if C < 1 else 1.0
