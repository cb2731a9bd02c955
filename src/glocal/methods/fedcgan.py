"""FedCGAN: a conditional GAN is shared, and synthetic data comes from its generator.

Rasouli, Sun, Rajagopal: *FedGAN: federated generative adversarial networks for distributed data*,
arXiv:2006.07228, 2020: every client trains generator G and discriminator D on its own data, and the
server averages both. As in FedEvg's dissertation, whose baseline it is, D also names the class
(AC-GAN: Odena, Olah, Shlens, ICML 2017). With z from N(0, 1) and x̂ = G(z, y), a mini-batch is

    D:  −log D(x) − log(1 − D(x̂)) + CE(x, y) + CE(x̂, y),
    G:  −log D(x̂) + CE(x̂, y),

where x̂ has the classes y of the client's own mini-batch: of a class that it has never seen, its D
could only say something at random. The server draws ``spc`` examples of each class. ``dense``:
images go through dense layers of 8 · ``width`` units instead of convolutions.

Departure: the released code of FedEvg makes x̂ of one class and tells D another, drawn at random;
here what is generated as y is y. Networks and classifier take the same ``optimiser`` and its
settings; of the networks Adam has β₁ = ½, as GANs commonly do. The client's classifier is
trained beside, on its own data: it is a local model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

from torch import Tensor
from torch.nn import functional

from glocal.core import rng
from glocal.core.types import Batch, Params, Tree
from glocal.methods.generative.federated_networks import averaged_networks
from glocal.methods.generative.networks import Nets, shades
from glocal.methods.training_args import TrainingArgs, local_sgd, with_adam
from glocal.nn.optim import adam
from glocal.nn.task import weighted_mean
from glocal.slots.method import Method


def fedcgan(
    *,
    spc: int = 10,
    code: int = 64,
    width: int = 32,
    dense: bool = False,
    steps: int | None = 10,
    **training: Unpack[TrainingArgs],
) -> Method:
    """A conditional GAN is shared; synthetic data comes from its generator.

    Clients train one generator of examples together, and the server draws labelled examples from
    it. It helps where examples are wanted in the place of data, also where clients have one or two
    classes. It does not help a client's own classifier, which is trained on its own data alone, and
    training goes up and down between rounds.

    Args:
        spc: synthetic examples per class.
        code: numbers that the generator draws for an example.
        width: channels of the networks' first layer.
        dense: whether images go through dense layers instead of convolutions.
        steps: mini-batches of a round, instead of epochs.
    """
    settings = with_adam(1e-2, training, steps)
    base = local_sgd(**settings)
    opt = base.opt
    if settings["optimiser"] == "adam":
        opt = adam(settings["lr"], beta1=0.5, weight_decay=settings.get("weight_decay", 0.0))

    def made(nets: Nets, g: Params, y: Tensor, key: Tensor) -> Tensor:
        return shades(nets.generator(g, rng.normal(key, (len(y), code)), y))

    def discriminator(nets: Nets, w: Tree, batch: Batch, key: Tensor) -> Callable[[Tree], Tensor]:
        x, y = batch["x"], batch["y"]
        fake = made(nets, w["generator"], y, key)

        def objective(at: Tree) -> Tensor:
            real, named = nets.critic(at["critic"], x)
            false, named_too = nets.critic(at["critic"], fake)
            each = functional.softplus(-real) + functional.softplus(false)
            names = _ce(named, y) + _ce(named_too, y)
            return weighted_mean(each + names, batch["weight"])

        return objective

    def generator(nets: Nets, w: Tree, batch: Batch, key: Tensor) -> Callable[[Tree], Tensor]:
        y = batch["y"]

        def objective(at: Tree) -> Tensor:
            false, named = nets.critic(w["critic"], made(nets, at["generator"], y, key))
            return weighted_mean(functional.softplus(-false) + _ce(named, y), batch["weight"])

        return objective

    return averaged_networks(
        "fedcgan",
        [(discriminator, ["critic"]), (generator, ["generator"])],
        base,
        opt,
        gradients=3,  # D's of x and of x̂, and G's
        spc=spc,
        code=code,
        width=width,
        dense=dense,
        steps=steps,
    )


def _ce(logits: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(logits, y, reduction="none")
