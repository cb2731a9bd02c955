"""Cohorts in blocks of one width, so that one program of fixed shapes trains them all.

Clients are sorted by how many steps they have and divided into blocks of ``width``; a block is
finished when its longest client is. The narrower the blocks, the less is computed for clients that
have finished, and the more calls there are.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from glocal.data.split import Split
from glocal.engines.base import WASTE, Workload
from glocal.engines.gradients import trained_on
from glocal.slots.client import Phase

MAX_BLOCKS = 16
"""Blocks at most: more calls would cost more than the steps they save."""


def width(split: Split, phase: Phase, batch: int, workload: Workload) -> int:
    """Clients in a block: the widest that wastes little on cohorts as they are to be expected.

    It depends on the federation and the phase alone, never on one round's cohort: a resumed run
    must be divided as before.
    """
    n = split.counts().cpu()
    steps = torch.full_like(n, phase.steps) if phase.steps else -(-n // batch) * phase.epochs
    steps = steps.sort(descending=True).values
    # A typical cohort has clients from all parts of the order.
    typical = steps[torch.linspace(0, len(steps) - 1, workload.cohort).round().long()]
    best, least = workload.cohort, float("inf")
    for blocks in range(8 if workload.varies else 1, MAX_BLOCKS + 1):
        wide = -(-workload.cohort // blocks)
        lost = wasted(typical, wide)
        if lost < least:
            best, least = wide, lost
        if lost <= WASTE:
            break
    return best


CACHE = 2 << 20
"""Bytes of models, gradients and new models that stay in a core's own cache, more or less."""

EVEN = 4
"""Blocks come in multiples of that, so that two threads or four have as many each."""


def cache_width(cohort: int, size: int) -> int:
    """Clients in a block on a CPU, of ``size`` bytes each.

    All of them are one block where they stay in the caches of two cores together. Else a block has
    as many as stay in the cache of one core, which then trains it by itself. How many cores there
    are does not matter: a run must be divided alike on any machine.
    """
    most = max(1, CACHE // max(1, 3 * size))
    if cohort <= 2 * most:
        return cohort
    blocks = -(-cohort // most)
    return -(-cohort // (-(-blocks // EVEN) * EVEN))


def lane_width(size: int) -> int:
    """Lanes in a block on a CPU, of ``size`` bytes each: as many as stay in the cache of a core."""
    most = max(1, CACHE // max(1, 3 * size))
    return most // EVEN * EVEN or most


def wasted(steps: Tensor, width: int) -> float:
    """Steps computed for finished clients, as a share of all others; ``steps`` descend."""
    blocks = -(-len(steps) // width)
    computed = width * int(sum(int(steps[b * width]) for b in range(blocks)))
    return computed / max(1, int(steps.sum())) - 1.0


@dataclass(frozen=True)
class Layout:
    """A cohort's clients, those with the most to do first, padded to whole blocks."""

    order: Tensor
    """[blocks · width] which client each place has; padding repeats the last client."""
    places: Tensor
    """[clients] where each client is."""
    moved: bool
    """Whether that is another order than the cohort's."""
    n: Tensor
    """[blocks, width], on the host: how many examples the client in each place has."""
    part: Tensor | None
    """[blocks · width] the part of its mini-batches that each does; None: all."""
    _steps: dict[tuple[int, int | None, int], list[int]] = field(default_factory=dict)
    """The steps of phases that were asked for before: rounds of one layout ask again."""

    @classmethod
    def of(cls, n: Tensor, width: int, device: torch.device, part: Tensor | None = None) -> Layout:
        """The layout of clients with ``n`` examples each (on the host)."""
        work = n if part is None else n * part.cpu()
        order = torch.sort(work, descending=True, stable=True).indices
        blocks = -(-len(n) // width)
        padding = blocks * width - len(n)
        moved = bool(padding) or not torch.equal(order, torch.arange(len(n)))
        padded = torch.cat([order, order[-1:].expand(padding)])
        places, padded_part = order.argsort().to(device), None if part is None else part[padded]
        return cls(padded.to(device), places, moved, n[padded].view(-1, width), padded_part)

    @property
    def blocks(self) -> int:
        """How many there are."""
        return len(self.n)

    def steps(self, phase: Phase, batch: int) -> list[int]:
        """The steps of each block in a phase: its longest client's, and no fewer than a later's."""
        asked = (phase.epochs, phase.steps, batch)
        if asked not in self._steps:
            part = None if self.part is None else self.part.cpu().view_as(self.n)
            longest = trained_on(phase, self.n, batch, part)[1].amax(1)
            self._steps[asked] = longest.flip(0).cummax(0).values.flip(0).tolist()
        return self._steps[asked]
