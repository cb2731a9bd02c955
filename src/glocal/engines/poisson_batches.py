"""Mini-batches as privacy accounting wants them: Poisson samples of a client's examples.

In each step every example of a client is in the batch with probability ``q = b / n``, whatever is
in others. There are as many steps as in passes over the data. Batches have ``b`` examples on
average; one may be empty.
"""

from __future__ import annotations

import torch
from torch import Tensor

from glocal.core import rng
from glocal.data.split import Split
from glocal.engines.batching import Batches

DRAWS = -3
"""The child of a client's key that its samples come from."""


def poisson_plan(
    split: Split, ids: Tensor, keys: Tensor, epochs: int, batch_size: int, steps: int | None = None
) -> Batches:
    """The batches of as many steps as ``epochs`` passes take, or of ``steps`` steps.

    Examples come first in a batch. Their weight is 1; where a client has fewer than ``batch_size``,
    so that all are in every batch, it is ``batch_size / n``, and ``1 / n`` where batches are all of
    a client's examples: summed and divided by ``batch_size`` (or 1) this is a mean over ``b``.
    """
    device = keys.device
    start, n = split.spans(ids, device)
    b = n.clamp(max=batch_size) if batch_size else n
    per_pass = -(-n // b)
    count = per_pass * epochs if steps is None else torch.full_like(n, steps)
    longest, own = int(n.max()), rng.fold(keys, DRAWS)
    live = torch.arange(longest, device=device) < n.unsqueeze(-1)
    q = (b / n.double()).unsqueeze(-1)
    places, chosen = [], []
    for t in range(int(count.max())):
        words = rng.bits(rng.fold(own, t), longest) >> 11 & (1 << 53) - 1
        drawn = (words.double() * 2.0**-53 < q) & live & (t < count).unsqueeze(-1)
        order = torch.argsort((~drawn).to(torch.int8), dim=-1, stable=True)
        places.append(order)
        chosen.append(drawn.gather(-1, order))
    real = torch.stack(chosen, dim=1)
    widest = max(1, int(real.sum(-1).max()))
    real, place = real[..., :widest], torch.stack(places, dim=1)[..., :widest]
    rows = split.rows.to(device)[torch.where(real, start.view(-1, 1, 1) + place, 0)]
    weight = real * ((batch_size or 1) / b).to(torch.float32).view(-1, 1, 1)
    return Batches(torch.where(real, rows, 0), weight, count.cpu())
