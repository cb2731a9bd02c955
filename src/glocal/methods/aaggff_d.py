"""AAggFF-D: fair aggregation as entropic steps, for any number of clients, sampled.

Hahn, Kim, Lee: *Pursuing overall welfare in federated learning through sequential decision making*,
ICML 2024. The received model's losses become responses r
(:mod:`glocal.methods.support.loss_responses`). A decision p on the simplex suffers −log(1 + ⟨p,
r⟩), with gradient g = −r / (1 + ⟨p, r⟩); p starts uniform, and the new p aggregates the same round.

Clients are sampled with probability C; responses from C1 = 0 to C2 = C (``c1``, ``c2``: others),
L̆ = C2/(1 + C1) + 2 (C2 − C1)/(C (1 + C1)), which is then C + 2. Who was absent is
filled in by a doubly robust estimate with the sample's mean r̄, the gradient is linearised there,
and there is a closed form in O(K):

    r̆_i = r̄ + 1[i∈S] (r_i − r̄)/C,    ğ = −r̆/(1 + r̄) + r̄ (⟨p, r̆⟩ − r̄)/(1 + r̄)²,
    p⁺ ∝ exp(−√(log K) Σğ / (L̆ √(t+1))).

The new p is renormalised over the sample. With everybody present (C = 1) nothing is estimated: the
gradient is g itself, with L = C2/(1 + C1) in the place of L̆, and the regret stays below
2L √(T log K). With sampling it stays, in the mean over draws, below 2L̆ √(T log K). ``alpha`` and
``beta`` are the parameters of the ``transform``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from glocal.core.types import Tree, Uplink
from glocal.methods.support.loss_responses import Responses, with_responses
from glocal.slots.weighting import Setting, Weighting, losses, renormalised


@with_responses
def aaggff_d(given: Responses) -> Weighting:
    """Entropic steps in closed form: for any number of clients, sampled.

    Clients with larger losses count more, by a rule whose regret is bounded. It helps where some of
    many clients, sampled, are served badly: on digits the worst tenth gained 8 points and no loss
    of the mean was shown. It does not help where all are served alike, nor make anybody better off
    than alone by itself.
    """

    def init(setting: Setting) -> Tree:
        C = setting.taking_part
        return entropic_start(setting.clients, C, lipschitz(C, given.low, given.high(C)))

    def weigh(state: Tree, uplink: Uplink) -> tuple[Tensor, Tree]:
        ids = uplink.ids.cpu()
        r = given.of(losses(uplink), given.high(float(state["sampled"])))
        state = entropic_step(state, ids, r)
        return standing(state, ids).to(uplink.n.device), state

    def standing(state: Tree, ids: Tensor) -> Tensor:
        return renormalised(entropic_decision(state), ids)

    return Weighting("aaggff-d", weigh, init, needs_loss=True, standing=standing)


def entropic_start(K: int, sampled: float, L: float | None = None) -> Tree:
    """Before the first round: the sum of gradients, rounds seen, the sampling probability, ``L̆``.

    The last is by default that of responses from 0 to the sampling probability.
    """
    zero = torch.zeros(K, dtype=torch.float64)
    constants = {"sampled": sampled, "L": lipschitz(sampled) if L is None else L}
    return {
        "g": zero,
        "rounds": zero.new_zeros(()),
        **{name: zero.new_tensor(value) for name, value in constants.items()},
    }


def entropic_decision(state: Tree) -> Tensor:
    """``p`` as it stands, over all K clients."""
    g, L = state["g"], float(state["L"])
    slope = math.sqrt(math.log(len(g))) / (L * math.sqrt(float(state["rounds"]) + 1))
    return torch.softmax(-slope * g, 0)


def entropic_step(state: Tree, ids: Tensor, r: Tensor) -> Tree:
    """One round of AAggFF-D, on the responses of the clients ``ids`` that took part."""
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


def lipschitz(C: float, low: float = 0.0, high: float | None = None) -> float:
    """The largest entry of a gradient, ``L̆`` or of everybody ``L``; by default C1 = 0, C2 = C."""
    high = C if high is None else high
    estimated = 2 * (high - low) / (C * (1 + low)) if C < 1 else 0.0
    return high / (1 + low) + estimated
