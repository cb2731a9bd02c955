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

    Args:
        shared: which layers are the shared body.
    """
    return Method(local=local_sgd(**training), shared=shared or all_but_last(1))
