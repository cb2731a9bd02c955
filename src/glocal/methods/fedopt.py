"""FedAvgM, FedAdam, FedYogi, FedAdagrad: FedAvg with an optimiser on the server.

Hsu, Qi, Brown: *Measuring the effects of non-identical data distribution for federated visual
classification*, 2019; Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan: *Adaptive
federated optimization*, ICLR 2021. The mean Δ = Σ p_i (w_i − w) of the clients' updates is the
negative of a gradient, which the server's optimiser follows, its state kept from round to round:

    w ← w + η m                  (FedAvgM)
    w ← w + η m / (√v + τ)       (the others)

with m and v as in :mod:`glocal.nn.server_optim`, where the defaults are explained. ``lr`` is the
clients' learning rate, ``server_lr`` is η. Each is another name for fedavg with a component:
``fedadam`` is ``fedavg+adam``, so any weighting goes with it.
"""

from __future__ import annotations

from typing import Unpack

from glocal.methods.training_args import TrainingArgs, local_sgd
from glocal.nn import server_optim as fedopt
from glocal.slots.method import Method


def fedavgm(
    *, server_lr: float = 1.0, beta: float = 0.9, **training: Unpack[TrainingArgs]
) -> Method:
    """FedAvg with momentum on the server: past rounds' updates go on.

    The server goes on in the direction of past rounds. It helps where few clients are sampled and
    one round's mean differs much from the next. It does not help where rounds agree anyway, and it
    gives no client a model of its own.

    Args:
        server_lr: step of the server along the mean update.
        beta: momentum of the server, below 1.
    """
    return Method(local=local_sgd(**training), server_opt=fedopt.momentum(server_lr, beta=beta))


def fedadam(  # noqa: D417
    *,
    server_lr: float = 0.03,
    beta1: float = 0.9,
    beta2: float = 0.99,
    tau: float = 1e-3,
    **training: Unpack[TrainingArgs],
) -> Method:
    """FedAvg with Adam on the server: steps divided by a running size of the updates.

    The server takes a step of its own length for every parameter, by how large its updates have
    been of late. It helps where updates are noisy or of very different size from parameter to
    parameter. It does not help where the server's rate is not tuned, and it gives no client a model
    of its own.

    Args:
        server_lr: step of the server.

    Other settings as of :func:`~glocal.nn.server_optim.adam`.
    """
    opt = fedopt.adam(server_lr, beta1=beta1, beta2=beta2, tau=tau)
    return Method(local=local_sgd(**training), server_opt=opt)


def fedyogi(
    *,
    server_lr: float = 0.03,
    beta1: float = 0.9,
    beta2: float = 0.99,
    tau: float = 1e-3,
    **training: Unpack[TrainingArgs],
) -> Method:
    """FedAvg with Yogi on the server: as FedAdam, but a size once large falls slowly.

    The server takes a step of its own length for every parameter, and forgets large updates slowly.
    It helps where FedAdam does and single rounds are outliers. It does not help where the server's
    rate is not tuned, and it gives no client a model of its own.

    Settings as of :func:`fedadam`.
    """
    opt = fedopt.yogi(server_lr, beta1=beta1, beta2=beta2, tau=tau)
    return Method(local=local_sgd(**training), server_opt=opt)


def fedadagrad(
    *,
    server_lr: float = 0.03,
    beta1: float = 0.0,
    tau: float = 1e-3,
    **training: Unpack[TrainingArgs],
) -> Method:
    """FedAvg with Adagrad on the server: steps divided by the size of all updates so far.

    The server takes a step of its own length for every parameter, shorter the more it has moved. It
    helps where few clients have a feature, as a rare word, and rounds are few. It does not help
    where the server's rate is not tuned, and it gives no client a model of its own.

    Settings as of :func:`fedadam`.
    """
    opt = fedopt.adagrad(server_lr, beta1=beta1, tau=tau)
    return Method(local=local_sgd(**training), server_opt=opt)
