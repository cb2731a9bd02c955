"""Flower's simulation on Ray: ``run_simulation`` with its ``FedAvg`` and a ``ClientApp``.

The actors that play the clients keep the data and a model between rounds. Evaluation is off; the
strategy's hook for evaluating on the server marks the rounds.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.serverapp.strategy.strategy_utils import sample_nodes
from flwr.simulation import run_simulation

from peers import work as works
from peers.work import Turns, Work

client_app = ClientApp()


@functools.cache
def kept() -> tuple[Work, Any]:
    """The data and a model: read once by each actor."""
    from peers import nets

    work = works.load(Path(os.environ["PEERS_WORK"]), mapped=True)
    return work, nets.build(work)


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """One client's epoch."""
    import torch
    from torch.nn import functional

    work, model = kept()
    r, place = (int(message.content["config"][k]) for k in ("turn", "place"))
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimiser = torch.optim.SGD(model.parameters(), lr=work.rate)
    x, y = work.examples(work.cohorts[r, place], work.orders[r, place])
    batches = (torch.from_numpy(part).split(work.batch_size) for part in (x, y))
    for inputs, labels in zip(*batches, strict=True):
        optimiser.zero_grad()
        functional.cross_entropy(model(inputs), labels).backward()
        optimiser.step()
    content = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"num-examples": len(y)}),
    }
    return Message(content=RecordDict(content), reply_to=message)


class Chosen(FedAvg):
    """FedAvg that tells the nodes of a round which clients they are."""

    turn = 0

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """As the original, with a place in the cohort for each message."""
        nodes, _ = sample_nodes(grid, self.min_available_nodes, self.min_train_nodes)
        return [
            Message(
                content=RecordDict(
                    {"arrays": arrays, "config": ConfigRecord({"turn": self.turn, "place": i})}
                ),
                message_type="train",
                dst_node_id=node,
            )
            for i, node in enumerate(nodes)
        ]


def contest(work: Work, setting: str, turns: Turns) -> None:
    """Rounds of its strategy, started once."""
    from peers import nets

    os.environ["PEERS_WORK"] = str(work.folder.resolve())
    clients, sampled = work.y.shape[0], work.cohorts.shape[1]
    module = nets.build(work)
    server_app = ServerApp()

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = Chosen(
            fraction_train=sampled / clients,
            fraction_evaluate=0.0,
            min_train_nodes=sampled,
            min_available_nodes=clients,
        )

        def mark(server_round: int, arrays: ArrayRecord) -> None:
            turns.params = lambda: list(arrays.to_numpy_ndarrays())
            r = next(turns, None)
            if r is not None:
                strategy.turn = r

        strategy.start(
            grid, ArrayRecord(module.state_dict()), num_rounds=work.rounds, evaluate_fn=mark
        )

    cores = os.cpu_count() or 1
    each = 1 if setting == "1 thread a client" else cores
    run_simulation(
        server_app,
        client_app,
        num_supernodes=clients,
        backend_config={
            "client_resources": {"num_cpus": each, "num_gpus": 0.0},
            "init_args": {"num_cpus": cores, "include_dashboard": False},
        },
    )
