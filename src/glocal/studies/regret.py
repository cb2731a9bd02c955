"""Fair aggregation as a game: what decisions cost, and against the best one in hindsight.

A decision p meets a response r and suffers ``−log(1 + ⟨p, r⟩)``. The regret of a sequence is what
it suffered more than the best fixed p would have, known only afterwards.
"""

from __future__ import annotations

import torch
from torch import Tensor

from glocal.methods.support.simplex import lowest


def decision_loss(p: Tensor, r: Tensor) -> Tensor:
    """``−log(1 + ⟨p, r⟩)``, a row of each to a number."""
    return -torch.log1p((p * r).sum(-1))


def best_fixed(r: Tensor) -> Tensor:
    """The p that suffers least from all responses ``r`` [T, K] together.

    Newton's method: each step is a quadratic on the simplex, shortened until the loss falls.
    """
    r = r.to(torch.float64)
    p = torch.full_like(r[0], 1 / r.shape[1])
    now = float(decision_loss(p, r).sum())
    for _ in range(100):
        scaled = r / (1 + r @ p).unsqueeze(1)
        slope, curve = -scaled.sum(0), scaled.T @ scaled
        way = lowest(curve, slope - curve @ p) - p
        falls = float(slope @ way)
        if falls > -1e-12:
            break
        length = 1.0
        while length > 1e-10:
            after = float(decision_loss(p + length * way, r).sum())
            if after <= now + 0.25 * length * falls:
                break
            length /= 2
        else:
            break
        p, now = p + length * way, after
    return p


def regret(p: Tensor, r: Tensor) -> Tensor:
    """[T] after each round: what decisions ``p`` [T, K] suffered more than the best fixed one.

    The best one is that of all T rounds, so only the last value is the regret of theorems; those
    before it show the way there, and may be below zero.
    """
    r = r.to(torch.float64)
    return (decision_loss(p, r) - decision_loss(best_fixed(r), r)).cumsum(0)
