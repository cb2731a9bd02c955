"""What a run is made of between two rounds, so that it can be saved as a checkpoint and resumed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from glocal.core.types import Tree
from glocal.evaluation.communication import Traffic
from glocal.training import best_round
from glocal.training.client_state.store import ClientStore


@dataclass(frozen=True)
class Decision:
    """How a round's clients were weighed."""

    ids: Tensor
    weights: Tensor
    """What each counted for in the aggregation."""
    loss: Tensor | None
    """The received model's loss at each, where the weighting asked for it."""
    standing: Tensor | None
    """What each would have counted for before its loss was seen, where the weighting says so."""


@dataclass
class Progress:
    """Where a run stands after ``round`` rounds."""

    server: Tree
    clients: ClientStore
    traffic: Traffic
    stage: int = 0
    stage_began: int = 0
    round: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    decision: Decision | None = None
    """Of the last round, for whoever looks on; nothing depends on it."""
    best: best_round.BestRound | None = None
    """Of a training that may end early."""
    took_part: Tensor | None = None
    """[stages, clients] in how many rounds, where each client's examples are protected."""
    secret: Tensor | None = None
    """The key of privacy's noise, until training ends (:mod:`glocal.training.secret_draws`)."""
