"""Which examples make up each mini-batch: the same for every engine.

Every epoch is a permutation of the client's examples, keyed by (round, client, phase, epoch) and
divided into batches; the last one may be short. For a cohort this is one tensor, padded to the
longest client; rows are places in the federation's arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from glocal.core import rng
from glocal.data.split import Split
from glocal.slots.client import Phase


@dataclass(frozen=True)
class Batches:
    """The mini-batches of a cohort for one phase."""

    rows: Tensor
    """[clients, steps, batch]: places in the federation's arrays (0 where padded)."""
    weight: Tensor
    """The same shape: 1 for an example, 0 for padding."""
    steps: Tensor
    """[clients], on the host: how many steps each client has; the rest are padding."""


class PlanSize(NamedTuple):
    """The sizes of a plan that fits any cohort of a federation."""

    longest: int
    """Examples of the largest client."""
    batch: int
    """Examples in the largest mini-batch."""
    steps: int
    """Of the client that has the most."""
    epochs: int
    """Passes over its data of the client that makes the most."""

    @classmethod
    def of(cls, split: Split, phase: Phase, batch_size: int) -> PlanSize:
        """The sizes for one phase."""
        n = split.counts()
        longest = int(n.max())
        batch = min(batch_size or longest, longest)
        if phase.steps is None:
            return cls(longest, batch, -(-longest // batch) * phase.epochs, phase.epochs)
        fewest = -(-int(n.min()) // batch)
        return cls(longest, batch, phase.steps, -(-phase.steps // fewest))


def plan(
    split: Split,
    ids: Tensor,
    keys: Tensor,
    epochs: int,
    batch_size: int,
    steps: int | None = None,
    size: PlanSize | None = None,
) -> Batches:
    """The batches of ``epochs`` passes for clients ``ids``; ``keys`` has one key for each.

    With ``steps``, every client has so many, in as many passes over its data as that takes. With
    ``size`` the shapes are those, whoever the clients are, and nothing waits for the device: then
    ``Batches.steps`` stays there. The batches are the same.
    """
    device, fixed = keys.device, size is not None
    starts = split.start.to(device)
    start = starts[ids]
    n = starts[ids + 1] - start
    if size is None:
        longest = int(n.max())
        batch = min(batch_size or longest, longest)
        per_epoch = -(-n // batch)
        if steps is not None:
            epochs = -(-steps // int(per_epoch.min()))
        most = int(per_epoch.max()) * epochs if steps is None else steps
        size = PlanSize(longest, batch, most, epochs)
    per_epoch = -(-n // size.batch)
    count = per_epoch * size.epochs if steps is None else torch.full_like(n, steps)
    t = torch.arange(size.steps, device=device)
    epoch = (t // per_epoch.unsqueeze(-1)).clamp(max=size.epochs - 1)
    within = torch.arange(size.batch, device=device)
    # [clients, steps, batch]: the place of each example in the order of its epoch.
    place = (t % per_epoch.unsqueeze(-1)).unsqueeze(-1) * size.batch + within
    real = (place < n.view(-1, 1, 1)) & (t < count.unsqueeze(-1)).unsqueeze(-1)
    places = epoch.unsqueeze(-1) * size.longest + place.clamp(max=size.longest - 1)

    epoch_keys = rng.fold(keys.unsqueeze(-1), torch.arange(size.epochs, device=device))
    live = torch.arange(size.longest, device=device) < n.unsqueeze(-1)
    # [clients, epochs, longest]
    order = rng.permutation(epoch_keys, size.longest, live.unsqueeze(1)).flatten(1)
    chosen = start.view(-1, 1, 1) + order.gather(1, places.flatten(1)).view(places.shape)
    rows = torch.where(real, split.rows.to(device)[torch.where(real, chosen, 0)], 0)
    return Batches(rows, real.to(torch.float32), count if fixed else count.cpu())
