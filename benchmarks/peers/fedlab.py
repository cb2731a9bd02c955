"""FedLab: its ``StandalonePipeline`` with the serial SGD trainer and the synchronous server.

Its loader may be anything that gives batches: here slices of the client's tensors, which is faster
than PyTorch's loader, which its examples use.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from peers.work import Turns, Work

# FedLab imports torchvision for data sets that are not used here, and torchvision's wheel does not
# go with every build of torch.
for name in ("torchvision", "torchvision.transforms", "torchvision.datasets"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["torchvision"].transforms = sys.modules["torchvision.transforms"]  # type: ignore
sys.modules["torchvision"].datasets = sys.modules["torchvision.datasets"]  # type: ignore


def contest(work: Work, setting: str, turns: Turns) -> None:
    """Rounds of its pipeline; its hook for evaluation marks their ends."""
    import torch
    from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
    from fedlab.contrib.algorithm.basic_server import SyncServerHandler
    from fedlab.contrib.dataset.basic_dataset import FedDataset
    from fedlab.core.standalone import StandalonePipeline

    from peers import nets

    nets.threads(setting)
    clients, sampled = work.y.shape[0], work.cohorts.shape[1]
    x, y = torch.from_numpy(work.x), torch.from_numpy(work.y)
    now: dict[str, Any] = {}

    class Data(FedDataset):
        def get_dataloader(self, id: int, batch_size: int, type: str = "train") -> Any:
            order = now["orders"][id]
            batches = (part[id][order].split(batch_size) for part in (x, y))
            return list(zip(*batches, strict=True))

    class Server(SyncServerHandler):
        def sample_clients(self) -> list[int]:
            return list(now["orders"])

    class Rounds(StandalonePipeline):
        def evaluate(self) -> None:
            r = next(turns, None)
            if r is None:
                self.handler.global_round = 0  # stops the pipeline
            else:
                cohort, orders = work.cohorts[r].tolist(), torch.from_numpy(work.orders[r])
                now["orders"] = dict(zip(cohort, orders, strict=True))

    trainer = SGDSerialClientTrainer(nets.build(work), clients)
    trainer.setup_dataset(Data())
    trainer.setup_optim(1, work.batch_size, work.rate)
    handler = Server(nets.build(work), work.rounds + 1, sampled / clients)
    turns.params = lambda: nets.exported(handler.model)
    pipeline = Rounds(handler, trainer)
    pipeline.evaluate()
    pipeline.main()
