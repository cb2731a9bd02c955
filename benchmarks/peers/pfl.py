"""pfl-research (Apple): ``FederatedAveraging.run`` on its simulated backend, in PyTorch.

A callback marks the rounds, so all that its loop does between two of them is in its time. Users are
handed to it by number, without its own sampling, and nothing is evaluated.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from peers.work import Turns, Work


def contest(work: Work, setting: str, turns: Turns) -> None:
    """Rounds in one process, or in two as ``torchrun`` starts them."""
    other = None
    if setting == "2 processes" and "RANK" not in os.environ:
        other = Second(work)
    import torch
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByDatapoints
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.federated_dataset import FederatedDatasetBase
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.internal.ops.selector import get_framework_module
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    from peers import nets

    nets.threads("1 thread" if setting == "2 processes" else setting)
    x, y = torch.from_numpy(work.x), torch.from_numpy(work.y)
    round_now = [0]

    class Users(FederatedDatasetBase):
        """The cohort's data in the order of the round; with two processes, every other client."""

        def __next__(self) -> Any:
            raise NotImplementedError

        def get_cohort(self, cohort_size: int) -> Iterator[Any]:
            workers = get_framework_module().distributed
            cohort, orders = work.cohorts[round_now[0]], work.orders[round_now[0]]
            for i in range(workers.global_rank, cohort_size, workers.world_size):
                order = torch.from_numpy(orders[i])
                own = (x[cohort[i]][order], y[cohort[i]][order])
                yield PyTorchTensorDataset(own, user_id=str(cohort[i])), 0

    class Marks(TrainingProcessCallback):
        """A turn begins with the training and ends after each central iteration."""

        def on_train_begin(self, *, model: Any) -> Any:
            self.next()
            return Metrics()

        def after_central_iteration(
            self, aggregate_metrics: Any, model: Any, *, central_iteration: int
        ) -> Any:
            return not self.next(), Metrics()

        def next(self) -> bool:
            r = next(turns, None)
            if other is not None:
                other.tell(r)
            if r is not None:
                round_now[0] = r
            return r is not None

    module = nets.build(work)
    module.loss = lambda inputs, labels: torch.nn.functional.cross_entropy(module(inputs), labels)
    module.metrics = lambda *_: {}
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    turns.params = lambda: nets.exported(module)
    algorithm = FederatedAveraging()
    algorithm._current_central_iteration = 1  # it would evaluate in iteration 0
    users = Users()
    algorithm.run(
        NNAlgorithmParams(
            central_num_iterations=work.rounds + 2,
            evaluation_frequency=work.rounds + 3,
            train_cohort_size=work.cohorts.shape[1],
            val_cohort_size=0,
        ),
        SimulatedBackend(users, users, postprocessors=[WeightByDatapoints()]),
        model,
        NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=work.rate, local_batch_size=work.batch_size
        ),
        callbacks=[Marks()],
        send_metrics_to_platform=False,
    )


class Second:
    """The process of rank 1: it is told the round when the first one is."""

    def __init__(self, work: Work) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        shared = {
            "TORCHELASTIC_RUN_ID": "peers",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "2",
        }
        command = [sys.executable, "-m", "peers.worker", "pfl", "2 processes", str(work.folder)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **shared, "RANK": "1", "LOCAL_RANK": "1"},
        )
        os.environ.update(shared, RANK="0", LOCAL_RANK="0")

    def tell(self, r: int | None) -> None:
        """Begin the same round, or stop."""
        assert self.process.stdin is not None
        line = '{"do": "stop"}' if r is None else f'{{"do": "round", "round": {r}}}'
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
