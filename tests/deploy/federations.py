"""Nine clients at three nodes, in one process: what the tests of deployments share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import glocal
from glocal.core import rng
from glocal.data.federation import Federation
from glocal.deploy.node import Node
from glocal.deploy.patience import Patience
from glocal.deploy.plan import DataSchema, DeployPlan
from glocal.deploy.serve import Served, serve
from glocal.deploy.transport import InProcess
from glocal.experiment.config_reading import from_arguments

CLIENTS, EACH = 9, 24

SETTINGS: dict[str, Any] = {
    "rounds": 3,
    "fraction": 2 / 3,
    "engine": "sequential",
    "model": "mlp(8)",
    "validate_every": 1,
    "baseline": "none",
}


def nine_clients(seed: int = 3) -> Federation:
    """Real clients, of different sizes, who are not tested on each other's examples."""
    n = CLIENTS * EACH
    x = rng.normal(rng.key(seed), (n, 6))
    y = x[:, :3].argmax(1)
    owner = torch.arange(n) * 7 % CLIENTS
    keep = torch.arange(n) % (10 + owner) != 0  # some have fewer
    return glocal.federation(x[keep], y[keep], owner[keep], seed=seed, pooled=False)


@dataclass
class FakeClock:
    """Time that goes by where somebody waits."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Network(InProcess):
    """Three nodes; ``between`` may change, lose or delay what they answer."""

    clock: FakeClock = field(default_factory=FakeClock)
    between: Callable[[str, bytes, bytes], bytes | None] = lambda node, request, answer: answer
    sent: list[bytes] = field(default_factory=list)
    """All that left a node."""

    def pull(self, message_ids: Any, wait: float) -> dict[str, bytes]:
        arrived = {}
        for i in list(message_ids):
            if i not in self.waiting:
                continue
            node, request = self.waiting.pop(i)
            answer = self.between(node, request, self.nodes[node](request))
            if answer is not None:
                self.sent.append(answer)
                arrived[i] = answer
        if len(arrived) < len(message_ids):
            self.clock.now += wait
        return arrived


@dataclass
class Deployment:
    """A plan, its nodes and where the server's folder is."""

    fed: Federation
    plan: DeployPlan
    folder: Path
    nodes: dict[str, Node]
    network: Network
    notes: list[str]
    """What nodes noted on their side."""

    @classmethod
    def of(cls, spec: str, folder: Path, secret: Any = None, **settings: Any) -> Deployment:
        """Nodes with three clients each: three of them, unless the data is given."""
        fed = settings.pop("fed", None) or nine_clients()
        results = settings.pop("results", None)
        config = from_arguments({**SETTINGS, **settings})
        plan = DeployPlan(spec, config, DataSchema.of(fed), results)
        notes: list[str] = []
        nodes = {
            f"node{i}": Node(
                plan,
                fed.part(range(len(fed))[3 * i : 3 * i + 3]),
                folder / f"node{i}",
                secret,
                notes.append,
            )
            for i in range(-(-len(fed) // 3))
        }
        network = Network({name: node.answer for name, node in nodes.items()})
        return cls(fed, plan, folder, nodes, network, notes)

    @property
    def keys(self) -> dict[str, bytes]:
        """The key of each client's node."""
        return {name: f"node{k // 3}".encode() for k, name in enumerate(self.fed.names)}

    def serve(self, **given: Any) -> Served:
        """All rounds that are left."""
        patience = Patience(deadline=30, joining=30, evaluation=30, clock=self.network.clock)
        where = (self.plan, self.network, self.keys, self.folder / "server")
        return serve(*where, **{"patience": patience, **given})

    def state(self, served: Served, client: int) -> Any:
        """What a client's node holds of it, in the version that counts."""
        assert served.progress is not None
        store = served.progress.clients
        if not bool(store.seen[client]):
            return None
        version = int(store.rows_of(torch.tensor([client]))["version"][0])
        name = self.fed.names[client]
        return self.nodes[f"node{client // 3}"].states.read(name, version) if version else None
