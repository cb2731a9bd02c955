"""The server of a deployment: rounds over a transport, with a checkpoint after each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glocal.core.types import Params
from glocal.deploy.plan import DeployPlan
from glocal.deploy.transport import Transport
from glocal.evaluation.summary import Table


@dataclass(frozen=True)
class Patience:
    """How long a server waits, and for how many."""

    deadline: float = 600.0
    """Seconds for the answers of a round."""
    quorum: float = 0.5
    """The share of a round's clients whose answers must have come; with fewer the run stops, and
    goes on from its checkpoint when it is started again."""
    joining: float = 3600.0
    """Seconds for all clients to join, before the first round."""


@dataclass(frozen=True)
class Served:
    """What a deployment came to."""

    model: Params
    history: list[dict[str, Any]]
    rows: Table
    """A row for each client that sent one."""
    summary: dict[str, Any] = field(default_factory=dict)


def serve(
    plan: DeployPlan,
    transport: Transport,
    admitted: Mapping[str, bytes],
    folder: Path,
    *,
    patience: Patience | None = None,
    on_line: Callable[[dict[str, Any]], None] = lambda line: None,
    stop: Callable[[], bool] = lambda: False,
) -> Served:
    """All rounds that are left, from the newest checkpoint in ``folder``; then the evaluation.

    ``admitted`` has the public key of the node of each client, by the client's name: no other node
    may speak for it. Its order numbers the clients. ``on_line`` gets each round's line, and those
    of a checkpoint again. Where there is no quorum in time, the error names the checkpoint.
    """
    raise NotImplementedError
