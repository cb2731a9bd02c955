"""The live view in a thread of the test, of folders that the test changes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glocal.report.live.server import Server, serving
from glocal.report.live.watched import Watched

DEPLOYED: dict[str, Any] = {
    "state": "running",
    "address": "127.0.0.1:8443",
    "method": "ditto",
    "digest": "d" * 64,
    "rounds": 5,
    "rounds_done": 3,
    "clients": ["Köln", "Lübeck"],
    "sent_bytes": 1234,
    "nodes": [["Köln"], ["Lübeck"]],
    "history": [
        {"round": 1, "cohort": 2, "train_loss": 0.5, "absent": {"Köln": "no answer in time"}},
        {"round": 2, "cohort": 2, "train_loss": 0.4, "refused": {"Lübeck": "length"}},
        {"round": 3, "cohort": 1, "train_loss": 0.3, "quarantined": ["Lübeck"]},
    ],
}
"""What a deployment's folder says."""


@dataclass
class Served:
    """A server that answers until it is stopped."""

    root: Path
    server: Server

    @property
    def url(self) -> str:
        """Without the last slash."""
        return self.server.access.url.rstrip("/")


@contextmanager
def served_from(root: Path, port: int = 0) -> Iterator[Served]:
    """A server of a folder."""
    with serving(Watched(root, lambda folder: DEPLOYED, fresh=0.0), "127.0.0.1", port) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield Served(root, server)
        finally:
            server.shutdown()
            thread.join()
