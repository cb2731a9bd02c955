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
    """One global model, the examples-weighted mean of the clients' models."""
    return Method(local=local_sgd(**training))
