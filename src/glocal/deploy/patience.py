"""How long a server waits for its nodes, and for how many of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from glocal.core.errors import GlocalError
from glocal.core.validation import positive


class NoQuorumError(GlocalError):
    """Too few clients answered in time; the run goes on from its checkpoint."""


@dataclass(frozen=True)
class Patience:
    """How long a server waits, and for how many."""

    deadline: float = 600.0
    """Seconds for the answers of a round."""
    evaluation: float = 3600.0
    """Seconds for the evaluation at the end, where clients also train alone."""
    joining: float = 3600.0
    """Seconds for all clients to join, before the first round."""
    quorum: float = 0.5
    """The share of the clients asked whose answers must count; with fewer the run stops, and goes
    on from its checkpoint when it is started again."""
    again: float = 120.0
    """Seconds after which a request that has no answer is sent again."""
    poll: float = 1.0
    """Seconds from one look at who is online to the next."""
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        positive(
            deadline=self.deadline,
            evaluation=self.evaluation,
            joining=self.joining,
            again=self.again,
            poll=self.poll,
        )
        if not 0 < self.quorum <= 1:
            raise GlocalError(f"quorum must be above 0 and up to 1, not {self.quorum}.")

    def needed(self, asked: int) -> int:
        """How many of so many answers must count."""
        return max(1, math.ceil(self.quorum * asked - 1e-9)) if asked else 0
