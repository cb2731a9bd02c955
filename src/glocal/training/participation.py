"""Who of a cohort takes part in a round, and how far each comes.

Between sampling and training: clients may be away or drop out
(:mod:`glocal.training.availability`), and be slow (:mod:`glocal.training.stragglers`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from glocal.core import rng
from glocal.core.types import Downlink
from glocal.engines.gradients import gradients
from glocal.slots.client import Local
from glocal.training.availability import Availability
from glocal.training.stragglers import Stragglers


@dataclass(frozen=True)
class Participants:
    """A cohort when the round is over."""

    sampled: Tensor
    """[cohort] ids of those that were drawn."""
    reached: Tensor
    """[cohort] whether each received what the server sent."""
    trains: Tensor
    """[cohort] whether each trained."""
    answers: Tensor
    """[cohort] whether something came from each."""
    parts: Tensor | None
    """[cohort] the part of its mini-batches that each did, if it trained; None: all."""

    @property
    def ids(self) -> Tensor:
        """Of those from whom something came."""
        return self.sampled[self.answers]

    @property
    def part(self) -> Tensor | None:
        """The part of its mini-batches that each of these did."""
        return None if self.parts is None else self.parts[self.answers]

    def gradients(self, local: Local, n: Tensor, down: Downlink, of_all: Tensor) -> int:
        """How many were computed, those of dropped stragglers among them.

        ``n`` are the training examples of all clients, on the host, and ``of_all`` the gradients
        that each computes in a whole round.
        """
        ids = self.sampled[self.trains].cpu()
        if self.parts is None:
            return int(of_all[ids].sum())
        return int(gradients(local, n[ids], down, self.parts[self.trains].cpu()).sum())

    def report(self, names: Sequence[str]) -> dict[str, list[str]]:
        """Whom it concerned, for the round's line."""
        masks = {"away": ~self.reached, "dropped": self.reached & ~self.answers}
        if self.parts is not None:
            masks["stragglers"] = self.trains & (self.parts < 1)
        lists = {key: self.sampled[mask].tolist() for key, mask in masks.items()}
        return {key: [names[i] for i in ids] for key, ids in lists.items() if ids}


def participants(
    cohort: Tensor,
    round: int,
    availability: Availability | None,
    stragglers: Stragglers | None,
    key: Tensor,
    names: Sequence[str],
) -> Participants:
    """Who of a cohort takes part in a round (from 1); ``key`` is the run's, ``names`` are all's."""
    everybody = cohort == cohort
    reached = trains = everybody
    if availability is not None:
        reached, trains = availability.split(cohort, round, rng.fold(key, 0), names)
    if stragglers is None:
        return Participants(cohort, reached, trains, trains, None)
    parts = stragglers.parts(cohort, rng.fold(rng.fold(key, 1), round))
    answers = trains if stragglers.used else trains & (parts == 1)
    return Participants(cohort, reached, trains, answers, parts)
