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


@dataclass(frozen=True)
class Batches:
    """The mini-batches of a cohort for one phase."""

    rows: Tensor
    """[clients, steps, batch]: places in the federation's arrays (0 where padded)."""
    weight: Tensor
    """The same shape: 1 for an example, 0 for padding."""
    steps: Tensor
    """[clients], on the host: how many steps each client has; the rest are padding."""

    def first(self, part: Tensor | None) -> Batches:
        """The first batches of each client: a ``part`` of its own; None: all."""
        if part is None:
            return self
        steps = steps_done(self.steps, part.to(self.steps.device))
        times = torch.arange(self.weight.shape[1], device=self.weight.device)
        done = times < steps.to(times.device).unsqueeze(-1)
        return Batches(self.rows, self.weight * done.unsqueeze(-1), steps)


class PlanSize(NamedTuple):
    """The sizes of a plan that fits all of some clients."""

    longest: int
    """Examples of the largest client."""
    batch: int
    """Examples in the largest mini-batch."""
    steps: int
    """Of the client that has the most."""
    epochs: int
    """Passes over its data of the client that makes the most."""

    @classmethod
    def of(cls, n: Tensor, epochs: int, steps: int | None, batch_size: int) -> PlanSize:
        """The sizes for clients with ``n`` examples; with ``steps`` they all have so many."""
        longest = int(n.max())
        batch = min(batch_size or longest, longest)
        if steps is None:
            return cls(longest, batch, -(-longest // batch) * epochs, epochs)
        fewest = -(-int(n.min()) // batch)
        return cls(longest, batch, steps, -(-steps // fewest))


def steps_done(steps: Tensor, part: Tensor | None) -> Tensor:
    """[clients]: how many of its steps each takes that does a ``part`` of them: one or more.

    With a part that is uniform between 0 and 1, every number of steps is equally likely.
    """
    return steps if part is None else (part * steps).ceil().to(steps.dtype).clamp(min=1)


class BatchIndex(NamedTuple):
    """Where each mini-batch is in the order of a client's examples: by how many it has, alone."""

    live: Tensor
    """[clients, longest]: which places of an epoch's order hold an example."""
    places: Tensor
    """[clients, steps · batch]: in the orders of all epochs, one after another."""
    real: Tensor
    """[clients, steps, batch]: whether that is an example, or padding."""
    steps: Tensor
    """[clients]: how many each has."""

    @classmethod
    def of(cls, n: Tensor, size: PlanSize, steps: int | None) -> BatchIndex:
        """The index of clients with ``n`` examples; with ``steps`` they all have so many."""
        per_epoch = -(-n // size.batch)
        count = per_epoch * size.epochs if steps is None else torch.full_like(n, steps)
        t = torch.arange(size.steps, device=n.device)
        epoch = (t // per_epoch.unsqueeze(-1)).clamp(max=size.epochs - 1)
        within = torch.arange(size.batch, device=n.device)
        place = (t % per_epoch.unsqueeze(-1)).unsqueeze(-1) * size.batch + within
        real = (place < n.view(-1, 1, 1)) & (t < count.unsqueeze(-1)).unsqueeze(-1)
        places = epoch.unsqueeze(-1) * size.longest + place.clamp(max=size.longest - 1)
        live = torch.arange(size.longest, device=n.device) < n.unsqueeze(-1)
        return cls(live, places.flatten(1), real, count)


def plan(
    split: Split,
    ids: Tensor,
    keys: Tensor,
    epochs: int,
    batch_size: int,
    steps: int | None = None,
    size: PlanSize | None = None,
    index: BatchIndex | None = None,
) -> Batches:
    """The batches of ``epochs`` passes for clients ``ids``; ``keys`` has one key for each.

    With ``steps``, every client has so many, in as many passes over its data as that takes. With
    ``size`` the shapes are those, whoever the clients are, and nothing waits for the device: then
    ``Batches.steps`` stays there. Where all clients have as many examples, the ``index`` of one,
    made beforehand, saves time. The batches are the same.
    """
    device, fixed = keys.device, size is not None
    starts = split.start.to(device)
    start = starts[ids]
    n = starts[ids + 1] - start
    if size is None:
        size = PlanSize.of(n, epochs, steps, batch_size)
    if index is None:
        index = BatchIndex.of(n, size, steps)
    shape = (len(ids), *index.real.shape[1:])
    epoch_keys = rng.fold(keys.unsqueeze(-1), torch.arange(size.epochs, device=device))
    # [clients, epochs, longest]
    order = rng.permutation(epoch_keys, size.longest, index.live.unsqueeze(1)).flatten(1)
    chosen = start.view(-1, 1, 1) + order.gather(1, index.places.expand(len(ids), -1)).view(shape)
    rows = torch.where(index.real, split.rows.to(device)[torch.where(index.real, chosen, 0)], 0)
    weight = index.real.to(torch.float32).expand(shape)
    count = index.steps.expand(len(ids))
    return Batches(rows, weight, count if fixed else count.cpu())
