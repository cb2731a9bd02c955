"""Several trainings side by side: their cohorts as one, which any engine trains as it trains one.

Repeats of a method, or settings in a search, differ in what each server sends, in which rows each
client has, and in the keys. So a client of a training is a *lane*: the federations are laid side by
side as one, in which client ``k`` of training ``r`` has the number ``r · K + k``, and every lane
has its own downlink and key (:class:`glocal.engines.base.Lanes`). What comes out is what each
training would have come to by itself, to the tolerance that engines agree to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from glocal.core import rng, tree
from glocal.core.types import Tree, Uplink
from glocal.data.federation import Federation
from glocal.data.split import Split
from glocal.engines.base import CohortRound, Engine, Lanes


@dataclass(frozen=True)
class SideBySide:
    """Federations with as many clients each, laid side by side."""

    federations: tuple[Federation, ...]
    whole: Federation

    @classmethod
    def of(cls, federations: Sequence[Federation]) -> SideBySide:
        """Rows that are the same in all of them are not copied."""
        first, *others = federations
        parts = ("x", "y", "y_train")
        same = all(_equal(getattr(fed, p), getattr(first, p)) for fed in others for p in parts)
        changes: dict[str, Any] = {"unsplit": None, "unit": None, "central": None}
        apart = 0 if same else len(first.x)
        if not same:
            changes |= {p: torch.cat([getattr(fed, p) for fed in federations]) for p in parts}
            if first.attributes is not None:  # the same people in all of them
                codes = first.attributes.codes.repeat(len(federations), 1)
                changes["attributes"] = replace(first.attributes, codes=codes)

        def joined(splits: Sequence[Split]) -> Split:
            rows = torch.cat([split.rows + r * apart for r, split in enumerate(splits)])
            counts = torch.cat([split.counts() for split in splits])
            return Split(rows, torch.cat([counts.new_zeros(1), counts.cumsum(0)]))

        for part in ("train", "val", "test"):
            changes[part] = joined([getattr(fed, part) for fed in federations])
        changes["targets"] = tuple(target for fed in federations for target in fed.targets)
        changes["names"] = tuple(name for fed in federations for name in fed.names)
        return cls(tuple(federations), replace(first, **changes))

    def rounds(
        self, engine: Engine, rounds: Sequence[CohortRound | None]
    ) -> list[tuple[Uplink, Tree] | None]:
        """One round of every training as one, ``rounds[r]`` in the ``r``-th federation.

        None is a training that has no round now, and has no result.
        """
        training = {r: work for r, work in enumerate(rounds) if work is not None}
        results: list[tuple[Uplink, Tree] | None] = [None] * len(rounds)
        if not training:
            return results
        uplink, states = engine.round(self._merged(training))
        began = 0
        for r, work in training.items():
            lane = slice(began, began + len(work.ids))
            part = replace(uplink.subset(lane), ids=work.ids)
            results[r] = part, tree.row(states, lane)
            began = lane.stop
        return results

    def _merged(self, rounds: dict[int, CohortRound]) -> CohortRound:
        """The cohorts of some trainings as one, which is named by the first of them."""
        first, clients = next(iter(rounds.values())), len(self.federations[0])
        each = list(rounds.values())
        sizes = torch.tensor([len(work.ids) for work in each])
        number = torch.arange(len(each)).repeat_interleave(sizes).to(first.ids.device)
        keys = torch.stack([work.key for work in each])[number]
        parts = [work.part for work in each if work.part is not None]
        numbers = [work.fed.number_of(work.ids) for work in each]
        workload = first.workload
        if workload is not None:
            cohort = workload.cohort * len(self.federations)
            workload = replace(workload, cohort=cohort, turns=workload.turns or (cohort,))
        return replace(
            first,
            fed=self.whole,
            down=tree.stack([work.down for work in each]),
            ids=torch.cat([work.ids + r * clients for r, work in rounds.items()]),
            states=tree.cat([work.states for work in each]),
            part=torch.cat(parts) if parts else None,
            lanes=Lanes(number, rng.fold(keys, torch.cat(numbers))),
            workload=workload,
        )


def _equal(a: Tensor, b: Tensor) -> bool:
    return a is b or (a.shape == b.shape and torch.equal(a, b))
