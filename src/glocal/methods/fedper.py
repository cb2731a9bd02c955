"""FedPer: a shared body, and a head of each client's own.

Arivazhagan, Aggarwal, Singh, Choudhary: *Federated learning with personalization layers*, 2019.
Body and head train together; the mean goes over the body alone, and the head never leaves its
client. Which layers are the body is ``shared``: all but the last by default.
"""

from __future__ import annotations

from typing import Unpack

from glocal.methods.training_args import TrainingArgs, local_sgd
from glocal.slots.method import Method
from glocal.slots.sharing import Selector, all_but_last


def fedper(*, shared: Selector | None = None, **training: Unpack[TrainingArgs]) -> Method:
    """A shared body and a private head, trained together.

    All clients share the layers that make features, and each has a last layer of its own. It helps
    where clients see the same kind of inputs and label them differently, or have other classes. It
    does not help where inputs themselves differ, as from other scanners, or where a client has too
    few examples for a layer of its own.

    Args:
        shared: which layers are the shared body.
    """
    return Method(local=local_sgd(**training), shared=shared or all_but_last(1))
