"""A client's states on its node's disk: one for each round that it trained in, a few of them kept.

The server says which round counted last, and training goes on from exactly that version. So a round
that was repeated, came too late or was refused leaves no trace.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glocal.core.types import ClientState
from glocal.training.checkpoint_files import CheckpointFiles

KEPT = 4
"""Versions of a client, beside those that the server names."""


@dataclass(frozen=True)
class Versions:
    """The states of the clients of a node, by client and round."""

    folder: Path

    def read(self, client: str, version: int) -> ClientState | None:
        """The state of this version; None where it is lost or damaged."""
        found = self._of(client).numbered(version)
        return None if found is None else found.trees["state"]

    def about(self, client: str, version: int) -> dict[str, Any]:
        """What was noted with a version; nothing where there is none."""
        found = self._of(client).numbered(version)
        return {} if found is None else found.facts

    def write(
        self,
        client: str,
        version: int,
        state: ClientState,
        spared: Collection[int],
        about: dict[str, Any],
    ) -> None:
        """Keep a new version, and those that the server may still ask for."""
        self._of(client).write(version, {"client": client, **about}, {"state": state}, spared)

    def _of(self, client: str) -> CheckpointFiles:
        # Names are anybody's, and need not be fit for a path.
        name = hashlib.sha256(client.encode()).hexdigest()[:16]
        return CheckpointFiles(self.folder / name, KEPT)
