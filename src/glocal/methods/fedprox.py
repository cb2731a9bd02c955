"""FedProx: FedAvg whose clients stay near the received model.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: *Federated optimization in heterogeneous networks*,
MLSys 2020. Client i minimises

    F_i(w_i) + (μ/2) ‖w_i − w‖²

with the norm squared and the half kept, both of which are easily lost. μ = 0 is FedAvg.
"""

from __future__ import annotations

from typing import Unpack

from torch import Tensor

from glocal.core import tree
from glocal.core.types import Batch, Downlink, Params
from glocal.core.validation import not_negative
from glocal.methods.training_args import TrainingArgs, local_sgd
from glocal.nn.task import Task
from glocal.slots.method import Method


def fedprox(*, mu: float = 0.01, **training: Unpack[TrainingArgs]) -> Method:
    """FedAvg with a pull of strength ``mu`` towards the received model.

    Clients train as in FedAvg and pay for going far from what they received. It helps to keep
    clients together that train for long or differ much. It does not give a client a model of its
    own, and with slow clients whose partial work is used FedAvg was as good here.

    Args:
        mu: strength of the pull to the received model.
    """
    not_negative(mu=mu)

    def proximal(task: Task, down: Downlink, w_i: Params, batch: Batch, key: Tensor) -> Tensor:
        w = down["params"]
        return task.loss(w_i, batch, key) + 0.5 * mu * tree.sq_norm(tree.sub(w_i, w))

    return Method(local=local_sgd(proximal, **training))
