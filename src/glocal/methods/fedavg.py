"""FedAvg: the average of the clients' models.

McMahan, Moore, Ramage, Hampson, y Arcas: *Communication-efficient learning of deep networks from
decentralized data*, AISTATS 2017.

    w ← Σ_{i∈S} n_i w_i / Σ_{i∈S} n_i

over the sampled clients S alone, each w_i trained from w with a fresh optimiser.
"""

from __future__ import annotations

from typing import Unpack

from glocal.methods.training_args import TrainingArgs, local_sgd
from glocal.slots.method import Method


def fedavg(**training: Unpack[TrainingArgs]) -> Method:
    """One global model, the examples-weighted mean of the clients' models.

    Clients train the model that they received for a few passes, and the server takes the mean of
    what comes back. It helps where clients' data is alike and each has little of it: all gain what
    one large data set would teach. It does not help where clients differ much: with two digits a
    client it made 18 of 20 worse off than alone. Compare the others with it.
    """
    return Method(local=local_sgd(**training))
