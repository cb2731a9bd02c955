"""FedCVAE: a conditional variational autoencoder is shared; its decoder makes synthetic data.

Sohn, Lee, Yan: *Learning structured output representation using deep conditional generative
models*, NIPS 2015; federated by averaging (McMahan et al., AISTATS 2017), a baseline of FedEvg's
dissertation. Encoder q(z|x, y) = N(μ, σ²) and decoder p(x|z, y) descend on the negative ELBO

    E_q[−log p(x|z, y)] + kl · KL(q ‖ N(0, 1)),    KL = −½ Σ (1 + log σ² − μ² − σ²),

and the server averages both by numbers of examples. It draws ``spc`` examples of each class: z from
N(0, 1), then the decoder's mean. Pixels (from 0 to 1) are Bernoulli, a table's numbers and its
categories' shares N(x̂, 1); of categories the largest is kept. ``dense``: images go through dense
layers of 8 · ``width`` units instead of convolutions.

Departure from the released code of FedEvg: there the reconstruction is a mean over pixels, which
leaves it a weight of 1/D against the KL term; here it is their sum, as in the ELBO. The client's
classifier is trained beside, on its own data: it is a local model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor
from torch.nn import functional

from glocal.core import rng
from glocal.core.types import Batch, Tree
from glocal.core.validation import not_negative
from glocal.methods.generative.federated_networks import averaged_networks
from glocal.methods.generative.networks import Nets
from glocal.methods.training_args import TrainingArgs, local_sgd, with_adam
from glocal.nn.task import weighted_mean
from glocal.slots.method import Method


def fedcvae(
    *,
    spc: int = 10,
    code: int = 16,
    width: int = 32,
    kl: float = 1.0,
    dense: bool = False,
    steps: int | None = 10,
    **training: Unpack[TrainingArgs],
) -> Method:
    """A conditional VAE is shared; synthetic data comes from its decoder.

    Clients train an encoder and a decoder of examples together, and the server draws labelled
    examples from the decoder. It helps where examples are wanted in the place of data, and trains
    steadily; on digits a classifier learnt most from its examples. It does not help a client's own
    classifier, which is trained on its own data alone, and its images are smooth.

    Args:
        spc: synthetic examples per class.
        code: numbers that stand for an example.
        width: channels of the networks' first layer.
        kl: weight of the distance of codes from N(0, 1).
        dense: whether images go through dense layers instead of convolutions.
        steps: mini-batches of a round, instead of epochs.
    """
    not_negative(kl=kl)
    settings = with_adam(1e-3, training, steps)
    base = local_sgd(**settings)

    def both(nets: Nets, w: Tree, batch: Batch, key: Tensor) -> Callable[[Tree], Tensor]:
        x, y = batch["x"], batch["y"]
        eps = rng.normal(key, (len(x), code))

        def objective(at: Tree) -> Tensor:
            mean, log_var = nets.encoder(at["encoder"], x, y)
            z = mean + torch.exp(log_var / 2) * eps
            said = nets.generator(at["generator"], z, y)
            return weighted_mean(negative_elbo(x, said, mean, log_var, kl), batch["weight"])

        return objective

    return averaged_networks(
        "fedcvae",
        [(both, ("encoder", "generator"))],
        base,
        base.opt,
        gradients=1,
        spc=spc,
        code=code,
        width=width,
        dense=dense,
        steps=steps,
    )


def negative_elbo(x: Tensor, said: Tensor, mean: Tensor, log_var: Tensor, kl: float) -> Tensor:
    """Of each example; ``said`` are logits of pixels, or means of a table's numbers."""
    if x.dim() == 4:
        each = functional.binary_cross_entropy_with_logits(said, x, reduction="none")
    else:
        each = (x - said).square() / 2
    divergence = -0.5 * (1 + log_var - mean.square() - log_var.exp()).sum(1)
    return each.flatten(1).sum(1) + kl * divergence
