"""Adaptation as people write it, for the tests to compare with."""

from __future__ import annotations

import torch
from torch import nn

from glocal.core import rng
from glocal.core.types import Params
from glocal.data.federation import Federation
from glocal.engines.batching import plan


def plain_fine_tune(
    model: nn.Module, start: Params, fed: Federation, client: int, *, epochs: int, lr: float
) -> Params:
    """``torch.optim.SGD`` on one client's mini-batches, in the order the engines draw them."""
    model.load_state_dict(start)
    sgd = torch.optim.SGD(model.parameters(), lr)
    for epoch in range(epochs):
        ids = torch.tensor([client])
        key = rng.fold(rng.fold(rng.fold(rng.key(5), epoch), ids), 0)
        batches = plan(fed.train, ids, key, 1, 10)
        for t in range(int(batches.steps[0])):
            real = batches.weight[0, t] > 0
            rows = batches.rows[0, t][real]
            sgd.zero_grad()
            nn.functional.cross_entropy(model(fed.x[rows]), fed.y_train[rows]).backward()
            sgd.step()
    return {k: v.detach().clone() for k, v in model.named_parameters()}
