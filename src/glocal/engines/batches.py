"""Which examples make up each mini-batch: the same for every engine.

Every epoch is a permutation of the client's examples, keyed by (round, client, phase, epoch) and
cut into batches; the last one may be short. For a cohort this is one tensor, padded to the longest
client; rows are places in the federation's arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from glocal import rng
from glocal.data.split import Split


@dataclass(frozen=True)
class Batches:
    """The mini-batches of a cohort for one phase."""

    rows: Tensor
    """[clients, steps, batch]: places in the federation's arrays (0 where padded)."""
    weight: Tensor
    """The same shape: 1 for an example, 0 for padding."""
    steps: Tensor
    """[clients], on the host: how many steps each client has; the rest are padding."""


def plan(
    split: Split,
    ids: Tensor,
    keys: Tensor,
    epochs: int,
    batch_size: int,
    steps: int | None = None,
) -> Batches:
    """The batches of ``epochs`` passes for clients ``ids``; ``keys`` has one key for each.

    With ``steps``, every client has so many, in as many passes over its data as that takes.
    """
    device = keys.device
    start = split.start.to(device)[ids]
    n = split.start.to(device)[ids + 1] - start
    longest = int(n.max())
    size = min(batch_size or longest, longest)
    per_epoch = -(-n // size)
    if steps is not None:
        epochs = -(-steps // int(per_epoch.min()))
    count = per_epoch * epochs if steps is None else torch.full_like(n, steps)

    live = torch.arange(longest, device=device) < n.unsqueeze(-1)
    epoch_keys = rng.fold(keys.unsqueeze(-1), torch.arange(epochs, device=device))
    order = rng.permutation(epoch_keys, longest, live.unsqueeze(1))  # [clients, epochs, longest]

    t = torch.arange(int(count.max()), device=device)
    epoch = (t // per_epoch.unsqueeze(-1)).clamp(max=epochs - 1)
    place = (t % per_epoch.unsqueeze(-1)).unsqueeze(-1) * size + torch.arange(size, device=device)
    real = (place < n.view(-1, 1, 1)) & (t < count.unsqueeze(-1)).unsqueeze(-1)
    flat = epoch.unsqueeze(-1) * longest + place.clamp(max=longest - 1)
    local = order.flatten(1).gather(1, flat.flatten(1)).view(flat.shape)
    rows = split.rows.to(device)[torch.where(real, start.view(-1, 1, 1) + local, 0)]
    rows = torch.where(real, rows, 0)
    return Batches(rows, real.to(torch.float32), count.cpu())
