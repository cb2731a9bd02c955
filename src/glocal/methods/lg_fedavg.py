"""LG-FedAvg: local representations under a shared top (or any other named split).

Liang, Liu, Ziyin, Allen, Auerbach, Brent, Salakhutdinov, Morency: *Think locally, act globally:
federated learning with local and global representations*, 2020. Some named layers θ^g are shared
and averaged as in FedAvg; the others, ℓ_i, stay on their client for good, and both train together:

    (ℓ_i, θ_i^g) ← SGD on F_i from (ℓ_i, θ^g),    θ^g ← Σ n_i θ_i^g / Σ n_i.

Before that, a warm-up: FedAvg on the whole model, until ``goal`` (mean validation accuracy) or for
``warmup`` rounds; then everybody starts the local-global rounds from the model it ended with. From
scratch (``warmup=0``) the method does not reach its published figures. The paper warms up for 400
of about 450 rounds (MNIST) and 1,200 of 1,260 (CIFAR-10); here 0.8 of the rounds by default.

``shared`` defaults to the last two layers. ``fedavg(shared=…)`` is the same without a warm-up;
``+grad-norm`` weights updates by their squared norm, as the 2019 version of the paper does.
"""

from __future__ import annotations

from typing import Unpack

from glocal.core.validation import not_negative
from glocal.methods.training_args import TrainingArgs, local_sgd
from glocal.slots.method import Method, Plan, Stage
from glocal.slots.sharing import Selector, last


def lg_fedavg(
    *,
    warmup: float = 0.8,
    goal: float | None = None,
    shared: Selector | None = None,
    **training: Unpack[TrainingArgs],
) -> Method | Plan:
    """FedAvg first (``warmup`` rounds, or a share of all), then some layers private.

    Everybody trains one model first; then each client keeps the layers near its inputs, and the top
    stays shared. It helps where clients' inputs differ, and where clients join later: the old ones
    lost little. It does not help without a warm-up, or a client with too few examples to train its
    own layers.

    Args:
        warmup: rounds of FedAvg first; below 1, a share of all rounds.
        goal: mean validation accuracy at which the warm-up ends.
        shared: which layers stay shared after it.
    """
    not_negative(warmup=warmup)
    local_global = Method(local=local_sgd(**training), shared=shared or last(2))
    if warmup == 0 and goal is None:
        return local_global
    first = Method(local=local_sgd(**training))
    warm_up = Stage(first, rounds=warmup or None, goal=goal, name="warm-up")
    return Plan((warm_up, Stage(local_global, name="local-global")))
