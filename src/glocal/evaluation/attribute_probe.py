"""A fresh adversary: what can be learnt about a protected attribute from frozen representations?

The adversary that a method trained against may be weak, or have lost a race: that it does not find
the attribute does not mean that it is gone (Elazar, Goldberg: *Adversarial removal of demographic
attributes from text data*, EMNLP 2018). So another one is trained when all else is over, on the
training representations of each client, and tested on its test representations.

A probe is a linear layer, or a multi-layer perceptron, on representations that are standardised
with the client's training rows (which a representation cannot escape by becoming small). It is
trained by Adam on all rows at once. The weight decay and the number of steps are those with the
least log loss on the client's validation rows. Probes of all clients train at once, each on its own
rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional

from glocal.core import rng, tree
from glocal.core.types import Params
from glocal.nn.optim import adam

LINEAR: tuple[int, ...] = ()
MLP = (32,)
"""The hidden layers of the two probes."""

PROBES = {"linear": LINEAR, "mlp": MLP}

STEPS, EVERY, RATE = 80, 10, 0.05
DECAYS = (0.0, 0.03)
"""What is chosen from: steps, each so many, and the strength of the decoupled weight decay."""


@dataclass(frozen=True)
class Representations:
    """The representations of clients' rows, padded to the longest client."""

    h: Tensor
    """[clients, n, d]"""
    attribute: Tensor
    """[clients, n]: the code of a protected attribute."""
    real: Tensor
    """[clients, n]: whether there is such a row."""


@torch.no_grad()
def probe(
    train: Representations,
    val: Representations,
    test: Representations,
    values: int,
    hidden: Sequence[int],
    key: Tensor,
) -> tuple[Tensor, Tensor]:
    """The logits [clients, n, values] of validation and of test rows.

    Each client's probe is the one that was chosen on its validation rows. ``values`` is how many
    the attribute has, ``hidden`` the widths of a probe's hidden layers.
    """
    mean, scale = _statistics(train)
    h, h_val, h_test = ((part.h - mean) / scale for part in (train, val, test))
    clients = torch.arange(len(h), device=h.device)
    best = torch.full((len(h),), torch.inf, device=h.device)
    first = _initial([h.shape[-1], *hidden, values], rng.fold(key, clients))
    chosen = _forward(first, h_val), _forward(first, h_test)
    for decay in DECAYS:
        opt = adam(RATE, weight_decay=decay, decoupled=True)
        w = first
        state = opt.init(w)
        for step in range(1, STEPS + 1):
            w, state = opt.update(_gradient(w, h, train), state, w, 1.0)
            if step % EVERY:
                continue
            now = _forward(w, h_val), _forward(w, h_test)
            loss = _losses(now[0], val)
            better = (loss < best).view(-1, 1, 1)
            best = torch.minimum(best, loss)
            chosen = torch.where(better, now[0], chosen[0]), torch.where(better, now[1], chosen[1])
    return chosen


def _statistics(train: Representations) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each client's training rows; 1 where all are the same."""
    real = train.real.unsqueeze(-1)
    n = real.sum(1, keepdim=True)
    mean = (train.h * real).sum(1, keepdim=True) / n
    std = (((train.h - mean) * real) ** 2).sum(1, keepdim=True).div(n).sqrt()
    return mean, torch.where(std > 1e-7 * (1 + mean.abs()), std, torch.ones_like(std))


def _initial(widths: Sequence[int], keys: Tensor) -> Params:
    """Weights of variance 2 / inputs for each client, and biases of 0."""
    w: Params = {}
    for layer, (a, b) in enumerate(pairwise(widths)):
        w[f"{layer}.weight"] = rng.normal(rng.fold(keys, layer), (a, b)) * (2 / a) ** 0.5
        w[f"{layer}.bias"] = torch.zeros(len(keys), 1, b, device=keys.device)
    return w


def _forward(w: Params, h: Tensor) -> Tensor:
    for layer in range(len(w) // 2):
        h = functional.relu(h) if layer else h
        h = torch.baddbmm(w[f"{layer}.bias"], h, w[f"{layer}.weight"])
    return h


def _losses(logits: Tensor, rows: Representations) -> Tensor:
    """Each client's mean log loss."""
    each = functional.cross_entropy(logits.transpose(1, 2), rows.attribute, reduction="none")
    return (each * rows.real).sum(1) / rows.real.sum(1).clamp(min=1)


def _gradient(w: Params, h: Tensor, rows: Representations) -> Params:
    """Of all clients at once: each one's loss depends on its own weights alone."""
    leaf = tree.map(lambda x: x.detach().requires_grad_(), w)
    with torch.enable_grad():
        loss = _losses(_forward(leaf, h), rows).sum()
    return dict(zip(leaf, torch.autograd.grad(loss, list(leaf.values())), strict=True))
