"""Client sampling: the cohort of a round, drawn from the round's key."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from glocal.core import rng
from glocal.core.errors import GlocalError, shown
from glocal.core.validation import fits, plain

MANY = 10_000
"""Clients from which on a draw takes time by how many are drawn, not by how many there are."""


class Sampler(Protocol):
    """Draws cohorts; ``share`` is the probability that a client is in one.

    One whose ``scheme`` is "fixed" or "poisson" can be accounted for in privacy.
    """

    def cohort(self, clients: int, key: Tensor) -> Tensor:
        """Ids in ascending order; may be empty (a skipped round)."""

    def share(self, clients: int) -> float:
        """C."""


@dataclass(frozen=True)
class Fixed:
    """Exactly ``number`` clients a round, every set of that size equally likely."""

    number: int
    scheme: ClassVar[str] = "fixed"

    def __post_init__(self) -> None:
        if self.number < 1:
            raise GlocalError(f"a round needs 1 client or more, not {self.number}.")

    def cohort(self, clients: int, key: Tensor) -> Tensor:
        """The first ``number`` of a random order; of many clients, of those drawn one by one."""
        if self.number > clients:
            raise GlocalError(
                f"{self.number} clients a round cannot be drawn from {clients}: ask for fewer."
            )
        if self.number == clients:
            return torch.arange(clients, device=key.device)
        if clients > MANY and self.number * 4 <= clients:
            return distinct(key, clients, self.number)
        return rng.permutation(key, clients)[: self.number].sort().values

    def share(self, clients: int) -> float:
        """``number / K``."""
        return self.number / clients


@dataclass(frozen=True)
class Fraction:
    """A fixed share of the clients, at least one: ``max(1, round(C · K))``."""

    fraction: float = 1.0
    scheme: ClassVar[str] = "fixed"

    def __post_init__(self) -> None:
        _share("fraction", self.fraction)

    def _fixed(self, clients: int) -> Fixed:
        return Fixed(max(1, round(self.fraction * clients)))

    def cohort(self, clients: int, key: Tensor) -> Tensor:
        """As :class:`Fixed` with that number."""
        return self._fixed(clients).cohort(clients, key)

    def share(self, clients: int) -> float:
        """The share after rounding."""
        return self._fixed(clients).share(clients)


@dataclass(frozen=True)
class Poisson:
    """Poisson sampling: each client independently, with probability ``rate``.

    Privacy accounting likes it best. The cohort's size varies; an empty one is a skipped round that
    still counts for privacy.
    """

    rate: float
    scheme: ClassVar[str] = "poisson"

    def __post_init__(self) -> None:
        _share("rate", self.rate)

    def cohort(self, clients: int, key: Tensor) -> Tensor:
        """The clients drawn, each on its own."""
        if clients > MANY and self.rate <= 0.25:
            return bernoulli(key, clients, self.rate)
        return (rng.uniform(key, (clients,)) < self.rate).nonzero().flatten()

    def share(self, clients: int) -> float:
        """``rate``."""
        return self.rate


@dataclass(frozen=True)
class Among:
    """Draws among the ``some`` clients only, as ``sampler`` would; ``always`` are in every round.

    Clients of a federation and one that joins are drawn differently: without a ``sampler`` none of
    ``some`` takes part, and a round is that of ``always``.
    """

    some: tuple[int, ...]
    sampler: Sampler | None
    always: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if set(self.some) & set(self.always):
            raise GlocalError("a client that is always there cannot be drawn too: name it once.")

    def cohort(self, clients: int, key: Tensor) -> Tensor:
        """Those drawn and those always there."""
        always = torch.tensor(self.always, dtype=torch.int64, device=key.device)
        if self.sampler is None:
            return always.sort().values
        some = torch.tensor(self.some, dtype=torch.int64, device=key.device)
        drawn = some[self.sampler.cohort(len(self.some), key)]
        return torch.cat([drawn, always]).sort().values

    def share(self, clients: int) -> float:
        """The mean over all clients."""
        drawn = self.sampler.share(len(self.some)) * len(self.some) if self.sampler else 0.0
        return (drawn + len(self.always)) / clients


def distinct(key: Tensor, clients: int, number: int) -> Tensor:
    """The first ``number`` different ones of clients drawn again and again, ascending.

    To pass over those drawn before leaves all others equally likely, so every set of that size is
    equally likely; the time does not depend on how many clients there are.
    """
    words = 1 << 63
    tries = number + number // 4 + 16
    while True:
        drawn = rng.bits(key, tries) & (words - 1)
        # The last few words, of which there is not one for each client, would favour the first.
        drawn = drawn[drawn <= words - 1 - words % clients] % clients
        clients_drawn, which = torch.unique(drawn, return_inverse=True)
        if len(clients_drawn) >= number:
            break
        tries *= 2  # begins with the same ones
    first = torch.full_like(clients_drawn, tries).scatter_reduce(
        0, which, torch.arange(len(drawn), device=key.device), "amin"
    )
    chosen: Tensor = clients_drawn[first.argsort()[:number]]
    return chosen.sort().values


def bernoulli(key: Tensor, clients: int, rate: float) -> Tensor:
    """Clients drawn independently with probability ``rate``, by the gaps between them.

    How many are left out before the next one is ``⌊log u / log(1 − rate)⌋``, with ``u`` uniform:
    Batagelj, Brandes: *Efficient generation of large random networks*, 2005.
    """
    mean = clients * rate
    tries = int(mean + 6 * math.sqrt(mean)) + 16
    while True:
        u = ((rng.bits(key, tries) >> 11 & (1 << 53) - 1).double() + 0.5) * 2.0**-53
        gaps = (u.log() / math.log1p(-rate)).floor().clamp(max=clients).long()
        places = (gaps + 1).cumsum(0) - 1
        if int(places[-1]) >= clients:
            return places[places < clients]
        tries *= 2


def _share(name: str, value: float) -> None:
    if not fits(plain(value), float) or not 0 < value <= 1:
        raise GlocalError(f"{name} must be above 0 and up to 1, not {shown(value)}.")
