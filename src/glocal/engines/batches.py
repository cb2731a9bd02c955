"""Which examples make up each mini-batch: the same for every engine.

Every epoch is a permutation of the client's examples, keyed by (round, client, phase, epoch) and
cut into batches; the last one may be short. For a cohort this is one tensor, padded to the longest
client; rows are places in the federation's arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from glocal import rng
from glocal.data.split import Split
from glocal.local import Phase


@dataclass(frozen=True)
class Batches:
    """The mini-batches of a cohort for one phase."""

    rows: Tensor
    """[clients, steps, batch]: places in the federation's arrays (0 where padded)."""
    weight: Tensor
    """The same shape: 1 for an example, 0 for padding."""
    steps: Tensor
    """[clients], on the host: how many steps each client has; the rest are padding."""


class Room(NamedTuple):
    """Sizes that hold the plan of any cohort of a federation."""

    longest: int
    """Examples of the largest client."""
    batch: int
    """Examples in the largest mini-batch."""
    steps: int
    """Of the client that has the most."""
    epochs: int
    """Passes over its data of the client that makes the most."""

    @classmethod
    def of(cls, split: Split, phase: Phase, batch_size: int) -> Room:
        """For one phase."""
        n = split.counts()
        longest = int(n.max())
        size = min(batch_size or longest, longest)
        if phase.steps is None:
            return cls(longest, size, -(-longest // size) * phase.epochs, phase.epochs)
        fewest = -(-int(n.min()) // size)
        return cls(longest, size, phase.steps, -(-phase.steps // fewest))


def plan(
    split: Split,
    ids: Tensor,
    keys: Tensor,
    epochs: int,
    batch_size: int,
    steps: int | None = None,
    room: Room | None = None,
) -> Batches:
    """The batches of ``epochs`` passes for clients ``ids``; ``keys`` has one key for each.

    With ``steps``, every client has so many, in as many passes over its data as that takes. With
    ``room`` the sizes are that, whoever the clients are, and nothing waits for the device: then
    ``Batches.steps`` stays there. The batches are the same.
    """
    device = keys.device
    start = split.start.to(device)[ids]
    n = split.start.to(device)[ids + 1] - start
    longest = room.longest if room else int(n.max())
    size = min(batch_size or longest, longest)
    per_epoch = -(-n // size)
    if steps is not None:
        epochs = room.epochs if room else -(-steps // int(per_epoch.min()))
    count = per_epoch * epochs if steps is None else torch.full_like(n, steps)

    live = torch.arange(longest, device=device) < n.unsqueeze(-1)
    epoch_keys = rng.fold(keys.unsqueeze(-1), torch.arange(epochs, device=device))
    order = rng.permutation(epoch_keys, longest, live.unsqueeze(1))  # [clients, epochs, longest]

    t = torch.arange(room.steps if room else int(count.max()), device=device)
    epoch = (t // per_epoch.unsqueeze(-1)).clamp(max=epochs - 1)
    place = (t % per_epoch.unsqueeze(-1)).unsqueeze(-1) * size + torch.arange(size, device=device)
    real = (place < n.view(-1, 1, 1)) & (t < count.unsqueeze(-1)).unsqueeze(-1)
    flat = epoch.unsqueeze(-1) * longest + place.clamp(max=longest - 1)
    local = order.flatten(1).gather(1, flat.flatten(1)).view(flat.shape)
    rows = split.rows.to(device)[torch.where(real, start.view(-1, 1, 1) + local, 0)]
    rows = torch.where(real, rows, 0)
    return Batches(rows, real.to(torch.float32), count if room else count.cpu())
