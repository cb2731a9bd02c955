"""How many gradients clients compute, by which methods are compared on an equal footing.

One gradient is that of one example's loss, forward and backward through a model. How many a step
takes of each example of its mini-batch is declared with the phase, and what it takes of other
examples with the client's half (:class:`glocal.slots.client.Local`). Forward passes alone, as for
the loss of the received model, are not counted.
"""

from __future__ import annotations

import torch
from torch import Tensor

from glocal.core.types import Downlink
from glocal.engines.batching import steps_done
from glocal.slots.client import Local, Phase


def gradients(local: Local, n: Tensor, down: Downlink, part: Tensor | None = None) -> Tensor:
    """[clients]: the gradients in one round of clients with ``n`` training examples.

    One that does a ``part`` of its mini-batches computes those of their examples alone.
    """
    own, all_steps = torch.zeros_like(n), torch.zeros_like(n)
    for phase in local.phases:
        examples, steps = trained_on(phase, n, local.batch_size, part)
        own, all_steps = own + phase.gradients * examples, all_steps + steps
    return own + local.other_gradients(down, all_steps)


def trained_on(
    phase: Phase, n: Tensor, batch_size: int, part: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """[clients] each: examples in all mini-batches of a phase, and how many mini-batches."""
    batch = n.clamp(max=batch_size) if batch_size else n
    per_epoch = -(-n // batch)
    all_steps = per_epoch * phase.epochs
    if phase.steps is not None:
        all_steps = torch.full_like(n, phase.steps)
    steps = steps_done(all_steps, part)
    # An epoch that is not completed lacks its last mini-batches, and the others are full.
    passes, rest = steps // per_epoch, steps % per_epoch
    return passes * n + rest * batch, steps
