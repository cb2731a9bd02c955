"""A node: clients' data and states, and what is answered to a server's requests."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from glocal.data.federation import Federation
from glocal.deploy.plan import DeployPlan


class Node:
    """The clients of one participant; their data and states stay here.

    ``answer`` never raises: what goes wrong is answered with a code, since the text of an exception
    may have data in it.
    """

    def __init__(
        self, plan: DeployPlan, fed: Federation, folder: Path, secret: Tensor | None = None
    ) -> None:
        self.plan, self.fed, self.folder, self.secret = plan, fed, folder, secret

    def answer(self, request: bytes) -> bytes:
        """The answer to a request of the server's."""
        raise NotImplementedError
