"""A plain PyTorch loop, as people write it (:func:`glocal.studies.bench.plain_loop`)."""

from __future__ import annotations

import torch

from glocal.studies.bench import plain_loop
from peers import nets
from peers.work import Turns, Work


def contest(work: Work, setting: str, turns: Turns) -> None:
    """Train a copy of the model on each client's rows in turn; average."""
    nets.threads(setting)
    module = nets.build(work)
    x = torch.from_numpy(work.x.reshape(-1, *work.input_shape))
    y = torch.from_numpy(work.y.reshape(-1))
    turns.params = lambda: nets.exported(module)
    for r in turns:
        rows = work.cohorts[r][:, None] * work.y.shape[1] + work.orders[r]
        orders = [torch.from_numpy(own) for own in rows]
        module.load_state_dict(plain_loop(module, x, y, orders, work.batch_size))
