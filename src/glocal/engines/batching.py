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
    def of(cls, split: Split, phase: Phase, batch_size: int) -> PlanSize:
        """For one phase."""
        n = split.counts()
        longest = int(n.max())
        size = min(batch_size or longest, longest)
        if phase.steps is None:
            return cls(longest, size, -(-longest // size) * phase.epochs, phase.epochs)
        fewest = -(-int(n.min()) // size)
        return cls(longest, size, phase.steps, -(-phase.steps // fewest))


class Cut(NamedTuple):
    """Where each mini-batch is in the order of a client's examples: by how many it has, alone."""

    live: Tensor
    """[clients, longest]: which places of an epoch's order are somebody's."""
    places: Tensor
    """[clients, steps · batch]: in the orders of all epochs, one after another."""
    real: Tensor
    """[clients, steps, batch]: whether that is an example, or padding."""
    weight: Tensor
    """The same as a number."""
    steps: Tensor
    """[clients]: how many each has."""

    @classmethod
    def of(cls, n: Tensor, room: PlanSize, steps: int | None) -> Cut:
        """For clients of ``n`` examples; with ``steps`` they all have so many."""
        device, size = n.device, room.batch
        per_epoch = -(-n // size)
        count = per_epoch * room.epochs if steps is None else torch.full_like(n, steps)
        t = torch.arange(room.steps, device=device)
        epoch = (t // per_epoch.unsqueeze(-1)).clamp(max=room.epochs - 1)
        within = torch.arange(size, device=device)
        place = (t % per_epoch.unsqueeze(-1)).unsqueeze(-1) * size + within
        real = (place < n.view(-1, 1, 1)) & (t < count.unsqueeze(-1)).unsqueeze(-1)
        flat = epoch.unsqueeze(-1) * room.longest + place.clamp(max=room.longest - 1)
        live = torch.arange(room.longest, device=device) < n.unsqueeze(-1)
        return cls(live, flat.flatten(1), real, real.to(torch.float32), count)


TABLE = 1 << 22
"""Numbers that a table of cuts may hold."""


class Cuts:
    """The cuts of all clients of a federation, made once for each number of examples they have."""

    def __init__(self, split: Split, room: PlanSize, steps: int | None) -> None:
        sizes, self.which = torch.unique(split.counts(), return_inverse=True)
        self.table = None
        if len(sizes) * (room.longest + room.steps * room.batch) <= TABLE:
            self.table = Cut.of(sizes, room, steps)
        self.alike = len(sizes) == 1
        self.whole = self.table is not None and bool(self.table.real.all())
        """Whether nobody's batches are padded."""

    def of(self, ids: Tensor) -> Cut | None:
        """Those of some clients (of one where all are alike); None: the table would be too long."""
        if self.table is None or self.alike:
            return self.table
        which = self.which[ids]
        return Cut(*(column[which] for column in self.table))


def plan(
    split: Split,
    ids: Tensor,
    keys: Tensor,
    epochs: int,
    batch_size: int,
    steps: int | None = None,
    room: PlanSize | None = None,
    cuts: Cuts | None = None,
) -> Batches:
    """The batches of ``epochs`` passes for clients ``ids``; ``keys`` has one key for each.

    With ``steps``, every client has so many, in as many passes over its data as that takes. With
    ``room`` the sizes are that, whoever the clients are, and nothing waits for the device: then
    ``Batches.steps`` stays there; ``cuts`` made beforehand save time. The batches are the same.
    """
    device, roomy = keys.device, room is not None
    starts = split.start.to(device)
    start = starts[ids]
    cut = cuts.of(ids) if cuts else None
    if cut is None:
        n = starts[ids + 1] - start
        if room is None:
            longest = int(n.max())
            size = min(batch_size or longest, longest)
            per_epoch = -(-n // size)
            if steps is not None:
                epochs = -(-steps // int(per_epoch.min()))
            most = int(per_epoch.max()) * epochs if steps is None else steps
            room = PlanSize(longest, size, most, epochs)
        cut = Cut.of(n, room, steps)
    assert room is not None

    epoch_keys = rng.fold(keys.unsqueeze(-1), torch.arange(room.epochs, device=device))
    # [clients, epochs, longest]
    order = rng.permutation(epoch_keys, room.longest, cut.live.unsqueeze(1)).flatten(1)
    shape = (len(ids), *cut.real.shape[1:])
    local = order.gather(1, cut.places.expand(len(ids), -1)).view(shape)
    places, rows = start.view(-1, 1, 1) + local, split.rows.to(device)
    if cuts is not None and cuts.whole:
        rows = rows[places]
    else:
        rows = torch.where(cut.real, rows[torch.where(cut.real, places, 0)], 0)
    count = cut.steps.expand(len(ids))
    return Batches(rows, cut.weight.expand(shape), count if roomy else count.cpu())
