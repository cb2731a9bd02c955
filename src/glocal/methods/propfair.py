"""PropFair: proportional fairness, the product of what clients have left below a baseline M.

Zhang, Malekmohammadi, Chen, Yu: *Proportional fairness in federated learning*, TMLR 2023. The
objective ``−Σ (n_i/n) log(M − F_i)`` has two spellings. ``propfair`` weighs on the server,

    p_i ∝ n_i / (M − F_i)

and ``propfair-loss`` lets clients minimise, with ℓ the loss of a mini-batch and plain weights,

    −log(1 − ℓ/M), or ℓ/M where M − ℓ < 0.2.

Never both: the tilt would count twice. Where a client's loss comes within 0.2 of M, the weight is
that of 0.2, as the logarithm's slope would blow up, and beyond M turn round.
"""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor

from glocal.core.types import Batch, Downlink, Params, Tree, Uplink
from glocal.core.validation import positive
from glocal.methods.training_args import TrainingArgs, local_sgd
from glocal.nn.task import Task
from glocal.slots.method import Method
from glocal.slots.weighting import Weighting, losses, tilted

MARGIN = 0.2


def propfair(baseline: float = 3.0) -> Weighting:
    """Weights by ``n_i / (M − F_i)``, with M the ``baseline``.

    Clients whose loss comes near a limit count more. It helps where some are served badly: the
    worst tenth gained 4 points on digits, and no loss of the mean was shown. It does not help where
    losses are beyond the limit, which must fit the task.

    Args:
        baseline: the loss M that all clients should stay below.
    """
    positive(baseline=baseline)

    def weigh(state: Tree, uplink: Uplink) -> tuple[Tensor, Tree]:
        left = (baseline - losses(uplink)).clamp(min=MARGIN)
        return tilted(uplink, -left.log()), state

    return Weighting("propfair", weigh, needs_loss=True)


def propfair_loss(*, baseline: float = 3.0, **training: Unpack[TrainingArgs]) -> Method:
    """Clients that minimise ``−log(1 − loss/M)``, with M the ``baseline``.

    Clients themselves minimise a loss that grows steeper towards a limit, so that bad results count
    more. It helps where some clients are served badly and losses stay below the limit. It does not
    help beside fair weightings, which would tilt twice.

    Args:
        baseline: the loss M that all clients should stay below.
    """
    positive(baseline=baseline)

    def objective(task: Task, down: Downlink, w: Params, batch: Batch, key: Tensor) -> Tensor:
        return proportional(task.loss(w, batch, key), baseline)

    return Method(local=local_sgd(objective, **training))


def proportional(loss: Tensor, M: float) -> Tensor:
    """``−log(1 − ℓ/M)``, or ``ℓ/M`` where M − ℓ < 0.2."""
    near = M - loss < MARGIN
    # Both branches are differentiated: the one not taken must stay finite.
    safe = torch.where(near, torch.zeros_like(loss), loss)
    return torch.where(near, loss / M, -torch.log1p(-safe / M))
