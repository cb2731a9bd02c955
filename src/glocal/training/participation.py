"""Who of a cohort takes part in a round, and how far each comes.

Between sampling and training: clients may be away or drop out
(:mod:`glocal.training.availability`), and be slow (:mod:`glocal.training.stragglers`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from glocal.core import rng
from glocal.core.errors import GlocalError
from glocal.core.progress import note
from glocal.core.types import Downlink
from glocal.engines.gradients import gradients
from glocal.training.availability import Availability
from glocal.training.stragglers import Stragglers

if TYPE_CHECKING:
    from glocal.training.loop import Training
    from glocal.training.run_state import Progress


@dataclass(frozen=True)
class Participants:
    """A cohort when the round is over."""

    sampled: Tensor
    """[cohort] ids of those that were drawn."""
    reached: Tensor | None = None
    """[cohort] whether each received what the server sent; None here and below: everybody did."""
    trains: Tensor | None = None
    """[cohort] whether each trained."""
    answers: Tensor | None = None
    """[cohort] whether something came from each."""
    parts: Tensor | None = None
    """[cohort] the part of its mini-batches that each did, if it trained; None: all."""

    @property
    def ids(self) -> Tensor:
        """Of those from whom something came."""
        return _those(self.sampled, self.answers)

    @property
    def part(self) -> Tensor | None:
        """The part of its mini-batches that each of these did."""
        return None if self.parts is None else _those(self.parts, self.answers)

    def gradients(self, training: Training, progress: Progress, down: Downlink) -> int:
        """How many are computed, those of dropped stragglers and before first rounds among them."""
        ids, stage = _those(self.sampled, self.trains).cpu(), progress.stage
        new = ids[~progress.clients.seen[ids]]
        alone = int(training.gradients_alone[stage][new].sum())
        if self.parts is None:
            return alone + int(training.gradients[stage][ids].sum())
        n, parts = training.fed.train.counts().cpu()[ids], _those(self.parts, self.trains).cpu()
        return alone + int(gradients(training.halves[stage], n, down, parts).sum())

    def report(self, names: Sequence[str]) -> dict[str, list[str]]:
        """Whom it concerned, for the round's line."""
        masks = {}
        if self.reached is not None and self.answers is not None:
            masks = {"away": ~self.reached, "dropped": self.reached & ~self.answers}
        if self.parts is not None and self.trains is not None:
            masks["stragglers"] = self.trains & (self.parts < 1)
        lists = {key: self.sampled[mask].tolist() for key, mask in masks.items()}
        return {key: [names[i] for i in ids] for key, ids in lists.items() if ids}


def _those(cohort: Tensor, mask: Tensor | None) -> Tensor:
    """Those of a cohort of whom the mask is true."""
    return cohort if mask is None else cohort[mask]


def answering(availability: Availability | None, stragglers: Stragglers | None) -> float | None:
    """The share of sampled clients that answers, as expected; None: it depends on the round."""
    present = 1.0 if availability is None else availability.present
    return present if present is None or stragglers is None else present * stragglers.present


def participants(training: Training, cohort: Tensor, number: int) -> Participants:
    """Who of a cohort takes part in a round (from 0), and how far each comes."""
    availability, stragglers = training.availability, training.stragglers
    if availability is None and stragglers is None:
        return Participants(cohort)
    key, names = training.presence_key, training.fed.names
    reached = trains = torch.ones_like(cohort, dtype=torch.bool)
    if availability is not None:
        reached, trains = availability.split(cohort, number + 1, rng.fold(key, 0), names)
    if stragglers is None:
        return Participants(cohort, reached, trains, trains, None)
    parts = stragglers.parts(cohort, rng.fold(rng.fold(key, 1), number + 1))
    answers = trains if stragglers.used else trains & (parts == 1)
    return Participants(cohort, reached, trains, answers, parts)


def check_somebody(training: Training) -> None:
    """Raise if nobody would answer in any round, whoever is sampled, or a name is nobody's."""
    everybody = torch.arange(len(training.fed))
    for number in range(training.rounds):
        if len(participants(training, everybody, number).ids):
            return
    named = {"availability": training.availability, "stragglers": training.stragglers}
    given = " and ".join(f"{name}='{each.spec}'" for name, each in named.items() if each)
    raise GlocalError(
        f"nobody would answer in any of {training.rounds} rounds ({given}), so nothing would be "
        "trained: let somebody be there."
    )


def check_answered(history: Sequence[Mapping[str, Any]]) -> None:
    """Raise if nobody answered in any round, and say so if in most of them nobody did."""
    empty = sum(
        line["cohort"] <= len(line.get("away", ())) + len(line.get("dropped", ()))
        for line in history
    )
    if empty and empty == len(history):
        raise GlocalError(
            f"nobody answered in any of {empty} rounds, so nothing was trained: sample more "
            "clients, or let more of them be there."
        )
    if 2 * empty > len(history):
        note(
            f"in {empty} of {len(history)} rounds nobody answered, so they trained nothing: sample "
            "more clients, or let more of them be there."
        )
