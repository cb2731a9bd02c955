"""Server optimisers, which step along the clients' mean update Δ in every round.

Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan: *Adaptive federated optimization*,
ICLR 2021, algorithm 2:

    m ← β1 m + (1 − β1) Δ
    v ← β2 v + (1 − β2) Δ²                    (Adam)
    v ← v − (1 − β2) Δ² sign(v − Δ²)          (Yogi)
    v ← v + Δ²                                (Adagrad)
    w ← w + η m / (√v + τ)

and Hsu, Qi, Brown: *Measuring the effects of non-identical data distribution for federated visual
classification*, 2019: ``m ← βm + Δ``, ``w ← w + ηm``. Here g = −Δ arrives as a gradient, so w moves
against it. τ says how adaptive a step is: far above the size of Δ, it is plain gradient descent.

Departures: none from algorithm 2, which has no bias correction (the optimisers of its authors'
released code have one). It asks that v begin at τ² or more; that it begins at τ² is a choice (in
the released code, at 0). β1 = 0.9 (Adagrad: 0), β2 = 0.99 and τ = 0.001 are the paper's. It tunes η
for each task; the defaults here are half powers of ten, rounded, chosen on validation data of
digits (20 clients, Dirichlet 0.3, 50 rounds, mean of three seeds). Adam and Yogi did as well from
0.01 to 0.1, to within the spread of seeds, and have the middle: tune them on your own data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.types import Params, Tree
from glocal.core.validation import below_one, positive
from glocal.nn.optim import Optimizer, Scale, sgd


def momentum(lr: float = 1.0, *, beta: float = 0.9) -> Optimizer:
    """FedAvgM: updates of past rounds continue to act. β = 0 is plain gradient descent.

    The server goes on in the direction of past rounds. It helps where few clients are sampled and
    one round's mean differs much from the next. It does not help where rounds agree anyway.

    Args:
        lr: step along the mean update.
        beta: how much of past steps goes on, below 1.
    """
    positive(lr=lr)
    below_one(beta=beta)
    return replace(sgd(lr, momentum=beta), name="momentum")


def adam(
    lr: float = 0.03, *, beta1: float = 0.9, beta2: float = 0.99, tau: float = 1e-3
) -> Optimizer:
    """FedAdam: steps are divided by a running mean of the updates' size.

    It helps where updates are noisy or of very different size from parameter to parameter. It does
    not help where its rate is not tuned, and is refused with weightings whose step has a length of
    its own.

    Args:
        lr: step of the server.
        beta1: how slowly the mean of the updates moves, below 1.
        beta2: how slowly their size moves, below 1.
        tau: added to the size: the larger, the less adaptive.
    """
    below_one(beta2=beta2)
    return _adaptive("adam", lr, beta1, tau, lambda v, d: beta2 * v + (1 - beta2) * d)


def yogi(
    lr: float = 0.03, *, beta1: float = 0.9, beta2: float = 0.99, tau: float = 1e-3
) -> Optimizer:
    """FedYogi: as Adam, but a size that was once large decreases slowly.

    It helps where Adam does and single rounds are outliers. It does not help where its rate is not
    tuned.

    Settings as of :func:`adam`.
    """
    below_one(beta2=beta2)
    return _adaptive("yogi", lr, beta1, tau, lambda v, d: v - (1 - beta2) * d * torch.sign(v - d))


def adagrad(lr: float = 0.03, *, beta1: float = 0.0, tau: float = 1e-3) -> Optimizer:
    """FedAdagrad: steps are divided by the size of all updates so far.

    It helps where few clients have a feature, as a rare word, and rounds are few. It does not help
    in long runs, as its steps only become shorter, or where its rate is not tuned.

    Settings as of :func:`adam`.
    """
    return _adaptive("adagrad", lr, beta1, tau, torch.add)


def _adaptive(
    name: str, lr: float, beta1: float, tau: float, rule: Callable[[Tensor, Tensor], Tensor]
) -> Optimizer:
    """Algorithm 2 with ``rule(v, Δ²)`` for the new v."""
    positive(lr=lr, tau=tau)
    below_one(beta1=beta1)

    def init(params: Params) -> Tree:
        v = tree.map(lambda w: torch.full_like(w, tau**2), params)
        return {"m": tree.zeros(params), "v": v}

    def update(grads: Params, state: Tree, params: Params, scale: Scale) -> tuple[Params, Tree]:
        m = tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state["m"], grads)
        v = tree.map(lambda v, g: rule(v, g * g), state["v"], grads)
        rate = lr * scale

        def move(w: Tensor, m: Tensor, v: Tensor) -> Tensor:
            return w - rate * m / (v.sqrt() + tau)

        return tree.map(move, params, m, v), {"m": m, "v": v}

    return Optimizer(name, init, update, lr, adaptive=True)
