"""Who takes part in a round, drawn from the round's key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from glocal import rng
from glocal.errors import GlocalError, shown
from glocal.fields import fits, plain


class Sampler(Protocol):
    """Draws cohorts; ``share`` is the probability that a client is in one.

    One whose ``scheme`` is "fixed" or "poisson" can be accounted for in privacy.
    """

    def cohort(self, clients: int, key: Tensor) -> Tensor:
        """Ids in ascending order; may be empty (a skipped round)."""
        ...

    def share(self, clients: int) -> float:
        """C."""
        ...


@dataclass(frozen=True)
class Fixed:
    """Exactly ``number`` clients a round, every set of that size equally likely."""

    number: int
    scheme: ClassVar[str] = "fixed"

    def __post_init__(self) -> None:
        if self.number < 1:
            raise GlocalError(f"a round needs 1 client or more, not {self.number}.")

    def cohort(self, clients: int, key: Tensor) -> Tensor:
        """The first ``number`` of a random order."""
        if self.number > clients:
            raise GlocalError(
                f"{self.number} clients a round cannot be drawn from {clients}: ask for fewer."
            )
        if self.number == clients:
            return torch.arange(clients, device=key.device)
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
    """Every client by its own coin of probability ``rate``: what privacy accounting likes best.

    The cohort's size varies; an empty one is a skipped round that still counts for privacy.
    """

    rate: float
    scheme: ClassVar[str] = "poisson"

    def __post_init__(self) -> None:
        _share("rate", self.rate)

    def cohort(self, clients: int, key: Tensor) -> Tensor:
        """Those whose coin came up."""
        return (rng.uniform(key, (clients,)) < self.rate).nonzero().flatten()

    def share(self, clients: int) -> float:
        """The coin's probability."""
        return self.rate


@dataclass(frozen=True)
class Among:
    """Draws among the clients ``who`` alone, as ``sampler`` would; ``always`` are in every round.

    Who was there before and who joins are drawn differently: without a ``sampler`` nobody of
    ``who`` takes part, and a round is that of ``always``.
    """

    who: tuple[int, ...]
    sampler: Sampler | None
    always: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if set(self.who) & set(self.always):
            raise GlocalError("a client that is always there cannot be drawn too: name it once.")

    def cohort(self, clients: int, key: Tensor) -> Tensor:
        """Those drawn and those always there."""
        always = torch.tensor(self.always, dtype=torch.int64, device=key.device)
        if self.sampler is None:
            return always.sort().values
        who = torch.tensor(self.who, dtype=torch.int64, device=key.device)
        drawn = who[self.sampler.cohort(len(self.who), key)]
        return torch.cat([drawn, always]).sort().values

    def share(self, clients: int) -> float:
        """The mean over all clients."""
        drawn = self.sampler.share(len(self.who)) * len(self.who) if self.sampler else 0.0
        return (drawn + len(self.always)) / clients


def _share(name: str, value: float) -> None:
    if not fits(plain(value), float) or not 0 < value <= 1:
        raise GlocalError(f"{name} must be above 0 and up to 1, not {shown(value)}.")
