"""A cohort in parts, and what the parts came to as one again."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from glocal.core import tree
from glocal.core.types import Tree, Uplink
from glocal.engines.base import CohortRound


def parts_of(cohort: CohortRound, size: int) -> list[CohortRound]:
    """The same round for ``size`` clients at a time."""
    return [cohort.subset(slice(a, a + size)) for a in range(0, len(cohort.ids), size)]


def joined(cohort: CohortRound, parts: Sequence[tuple[Uplink, Tree]]) -> tuple[Uplink, Tree]:
    """What the cohort sends and keeps, from its parts in order."""
    if len(parts) == 1:
        return parts[0]
    sent = [uplink for uplink, _ in parts]
    losses = [uplink.loss for uplink in sent if uplink.loss is not None]
    uplink = Uplink(
        ids=cohort.ids,
        n=torch.cat([u.n for u in sent]),
        update=tree.cat([u.update for u in sent]),
        loss=torch.cat(losses) if losses else None,
        extra=tree.cat([u.extra for u in sent]),
    )
    return uplink, tree.cat([states for _, states in parts])
