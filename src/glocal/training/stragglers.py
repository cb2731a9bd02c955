"""Stragglers: clients that finish part of a round's work.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: *Federated optimization in heterogeneous networks*
(FedProx), MLSys 2020, section 5.2, let a share of a round's devices do a number of epochs that is
drawn uniformly. What they did is used (their FedProx), or they are dropped (their FedAvg)::

    use(0.5)     each client is a straggler with probability 0.5; what it did is used
    drop(0.5)    the same clients are dropped, whatever they did

A straggler does the first ``⌈p · steps⌉`` of its mini-batches, with ``p`` uniform from ``at_least``
to 1, and of a method's every phase the same part: one mini-batch or more. Departures: mini-batches
are counted, not epochs; and every client is a straggler by itself, where the paper draws an exact
share of the cohort. Then who is dropped would depend on who else is there, which privacy does not
account for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from glocal.core import rng
from glocal.core.errors import GlocalError, shown
from glocal.core.validation import build, check, real


@dataclass(frozen=True)
class Stragglers:
    """Which clients are slow in a round, and what becomes of what they did."""

    share: float
    """The probability that a client is one."""
    at_least: float
    """The part of its mini-batches that a straggler does, at least."""
    used: bool
    """Whether what it did is used; else it is dropped."""

    @property
    def spec(self) -> str:
        """As it is written."""
        return f"{'use' if self.used else 'drop'}({self.share:g}, at_least={self.at_least:g})"

    def __post_init__(self) -> None:
        for name in ("share", "at_least"):
            value = getattr(self, name)
            if not 0 <= real(value, f"stragglers' {name}") <= 1:
                raise GlocalError(f"stragglers' {name} must be from 0 to 1, not {shown(value)}.")
        if self.share == 1 and not self.used:
            raise GlocalError(
                "stragglers='drop(1)' leaves nobody to train: give a share below 1, or use(1)."
            )

    @property
    def present(self) -> float:
        """The share of clients that answers, as expected in any round."""
        return 1.0 if self.used else 1.0 - self.share

    def parts(self, ids: Tensor, key: Tensor) -> Tensor:
        """[clients]: the part of its mini-batches that each does; 1 of those that are not slow."""
        keys = rng.fold(key, ids)
        slow = rng.uniform(rng.fold(keys, 0), ()) < self.share
        # In the middle of 2^24 equal pieces: never 0 and never 1, which is not being slow.
        u = rng.uniform(rng.fold(keys, 1), ()).double() + 2.0**-25
        return torch.where(slow, self.at_least + (1.0 - self.at_least) * u, 1.0)


def use(share: float, at_least: float = 0.0) -> Stragglers:
    """What stragglers did is used."""
    return Stragglers(share, at_least, used=True)


def drop(share: float, at_least: float = 0.0) -> Stragglers:
    """Stragglers are dropped, whatever they did."""
    return Stragglers(share, at_least, used=False)


POLICIES: dict[str, Callable[..., Stragglers]] = {"use": use, "drop": drop}


def stragglers(given: str | Stragglers | None) -> Stragglers | None:
    """The stragglers of a spec; of none, none."""
    if given is None or isinstance(given, Stragglers):
        return given
    check("stragglers", given, str)
    return build("policy for stragglers", POLICIES, given)
