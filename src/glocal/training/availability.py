"""Availability: clients that are sampled and are not there, and clients that do not answer.

A spec such as ``dropout(0.2)`` or ``on-off(5, 3)+dropout(0.1)`` names what keeps clients from a
round. Cohorts are drawn as ever, from all clients. Then

- whoever is *away* is not reached: nothing is sent to it, and nothing comes;
- whoever *drops out* has received what the server sent, and nothing comes.

For either the round did not take place: it keeps its state as it was. Absence is a function of
keys, the client and the round, never of data. On this the accounting of privacy rests: a cohort
that is thinned without a look at data, each client by itself, is one in which everybody is less
likely to be than it was sampled, so ε is at most what it is without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glocal.core import rng
from glocal.core.errors import GlocalError, shown
from glocal.core.spec import split_plus
from glocal.core.validation import build, check, integer, real
from glocal.data.transforms import Clients, chosen


@dataclass(frozen=True)
class Asked:
    """Whose absence is asked for, and when."""

    ids: Tensor
    """[clients]."""
    round: int
    """From 1, as in a round's line."""
    key: Tensor
    """Of the run: the same in all rounds."""
    names: Sequence[str]
    """Of all clients, by id."""

    def uniform(self, round: int) -> Tensor:
        """[clients]: a number from 0 to 1 for each client in a round."""
        return rng.uniform(rng.fold(rng.fold(self.key, round), self.ids), ())


@dataclass(frozen=True)
class Absence:
    """One thing that keeps clients from a round."""

    absent: Callable[[Asked], Tensor]
    """[clients]: who is kept from it."""
    reached: bool
    """Whether they have received what the server sent."""
    present: float | None
    """The share of clients that it leaves, as expected in any round; None: it depends on the
    round."""


@dataclass(frozen=True)
class Availability:
    """What keeps clients from rounds, one after another."""

    spec: str
    absences: tuple[Absence, ...]

    @property
    def present(self) -> float | None:
        """The share of sampled clients that answers, as expected; None: it depends on the round."""
        share = 1.0
        for each in self.absences:
            if each.present is None:
                return None
            share *= each.present
        return share

    def split(
        self, ids: Tensor, round: int, key: Tensor, names: Sequence[str]
    ) -> tuple[Tensor, Tensor]:
        """Which of a cohort are reached in a round (from 1), and which of them answer."""
        reached = answers = torch.ones(len(ids), dtype=torch.bool, device=ids.device)
        for position, each in enumerate(self.absences):
            there = ~each.absent(Asked(ids, round, rng.fold(key, position), names))
            answers = answers & there
            if not each.reached:
                reached = reached & there
        return reached, answers & reached


def dropout(rate: float) -> Absence:
    """Clients that receive a round's model and do not answer, each with probability ``rate``."""
    if not 0 <= real(rate, "the rate of dropout") < 1:
        raise GlocalError(f"the rate of dropout must be 0 or more and below 1, not {shown(rate)}.")
    return Absence(lambda asked: asked.uniform(asked.round) < rate, True, 1.0 - rate)


def on_off(on: int, off: int, random: bool = False) -> Absence:
    """Clients that are there for ``on`` rounds and away for ``off``, and so on.

    Each begins at a time of its own. With ``random`` these are mean lengths, and each round has the
    same chance to be the last: a Markov chain, which begins as it is in the long run.
    """
    integer(on, "on", 1)
    integer(off, "off", 0)
    check("random", random, bool)

    def periodic(asked: Asked) -> Tensor:
        begins = rng.randint(rng.fold(asked.key, asked.ids), on + off, ())
        return (asked.round + begins) % (on + off) >= on

    absent = _chain(1 - 1 / on, 1 / off, on / (on + off)) if random and off else periodic
    return Absence(absent, False, on / (on + off))


def _chain(stays: float, returns: float, there: float) -> Callable[[Asked], Tensor]:
    """Who is away: someone there stays with one probability, and returns from away with another.

    One number decides in a round: below both probabilities a client is there next, above both it is
    away, whatever it was, and between them it depends on the round before. So one need only look
    back to the last round that decided by itself.
    """
    low, high = min(stays, returns), max(stays, returns)

    def absent(asked: Asked) -> Tensor:
        away = torch.zeros_like(asked.ids, dtype=torch.bool)
        turned, unknown = away.clone(), ~away
        for earlier in range(asked.round, 1, -1):
            u = asked.uniform(earlier)
            decided = unknown & ((u < low) | (u >= high))
            away = torch.where(decided, (u >= high) ^ turned, away)
            unknown = unknown & ~decided
            if returns > stays:  # between them, whoever was there is away and the other way round
                turned = turned ^ unknown
            if not bool(unknown.any()):
                return away
        return torch.where(unknown, (asked.uniform(1) >= there) ^ turned, away)

    return absent


def away(first: int, last: int | None = None, clients: Clients = None) -> Absence:
    """Clients that are away from round ``first`` to round ``last``; without ``last``, for good.

    ``clients`` are written as in transforms of the data: a number, a share, or only(…).
    """
    integer(first, "the first round away", 1)
    if last is not None:
        integer(last, "the last round away", first)

    def absent(asked: Asked) -> Tensor:
        gone = chosen(clients, asked.names, rng.seed_of(asked.key))
        if asked.round < first or (last is not None and asked.round > last):
            gone = []
        return torch.isin(asked.ids, asked.ids.new_tensor(gone))

    return Absence(absent, False, None)


ABSENCES: dict[str, Callable[..., Absence]] = {"dropout": dropout, "on-off": on_off, "away": away}


def availability(given: str | Availability | None) -> Availability | None:
    """The availability of a spec; of none, none."""
    if given is None or isinstance(given, Availability):
        return given
    check("availability", given, str)
    parts = (build("availability", ABSENCES, part) for part in split_plus(given))
    return Availability(given, tuple(parts))
