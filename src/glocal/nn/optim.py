"""Optimisers as pure functions, for clients and the server, and schedules over rounds.

``init(params)`` makes the state; ``update(grads, state, params, scale)`` returns new parameters and
the new state. ``scale`` is the schedule's factor on the learning rate, a tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.core.types import Params, Tree
from glocal.core.validation import below_one, not_negative, positive, positive_integers

Scale = float | Tensor


@dataclass(frozen=True)
class Optimizer:
    """An optimiser: the two functions of this module's docstring, and a name."""

    name: str
    init: Callable[[Params], Tree]
    update: Callable[[Params, Tree, Params, Scale], tuple[Params, Tree]]
    lr: float = 1.0
    """The learning rate before the schedule; SCAFFOLD's control variates need it."""
    adaptive: bool = False
    """Whether steps are divided by the size of past gradients, so that their own is lost."""


def sgd(
    lr: float = 1.0,
    *,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
) -> Optimizer:
    """Gradient descent: ``m ← βm + g``, ``w ← w − ηm`` (Nesterov: ``w ← w − η(g + βm)``).

    With a rate of 1 the server takes the mean of the clients' models. It helps as the default. It
    does not help to smooth rounds that differ much.

    Args:
        lr: step along the mean update.
        momentum: how much of past steps goes on, below 1.
        weight_decay: strength of the pull to 0.
        nesterov: whether momentum looks ahead.
    """
    positive(lr=lr)
    not_negative(weight_decay=weight_decay)
    below_one(momentum=momentum)
    if nesterov and momentum == 0.0:
        raise GlocalError("nesterov needs momentum: give momentum=0.9, say.")

    def init(params: Params) -> Tree:
        return {"m": tree.zeros(params)} if momentum else {}

    def update(grads: Params, state: Tree, params: Params, scale: Scale) -> tuple[Params, Tree]:
        if weight_decay:
            grads = tree.add(grads, params, weight_decay)
        if momentum:
            m = tree.map(lambda m, g: momentum * m + g, state["m"], grads)
            state = {"m": m}
            grads = tree.add(grads, m, momentum) if nesterov else m
        rate = -lr * scale

        def move(w: Tensor, g: Tensor) -> Tensor:
            # One pass over memory: ``w + rate * g`` would make a copy of the model on the way.
            if isinstance(rate, Tensor):
                return torch.addcmul(w, g, rate)
            return torch.add(w, g, alpha=rate)

        return tree.map(move, params, grads), state

    return Optimizer("sgd", init, update, lr)


def adam(
    lr: float = 1e-3,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    decoupled: bool = False,
) -> Optimizer:
    """Adam: steps scaled by running moments of the gradient.

    Kingma, Ba: *Adam: a method for stochastic optimization*, ICLR 2015. ``decoupled`` applies the
    weight decay beside the gradient instead of adding it to the gradient, as AdamW does.
    """
    positive(lr=lr, eps=eps)
    not_negative(weight_decay=weight_decay)
    below_one(beta1=beta1, beta2=beta2)

    def init(params: Params) -> Tree:
        first = next(iter(params.values()), torch.zeros(()))
        t = torch.zeros((), device=first.device)
        return {"m": tree.zeros(params), "v": tree.zeros(params), "t": t}

    def update(grads: Params, state: Tree, params: Params, scale: Scale) -> tuple[Params, Tree]:
        if weight_decay and not decoupled:
            grads = tree.add(grads, params, weight_decay)
        t = state["t"] + 1
        m = tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state["m"], grads)
        v = tree.map(lambda v, g: beta2 * v + (1 - beta2) * g * g, state["v"], grads)
        rate = lr * scale
        keep = 1 - rate * weight_decay if decoupled else 1.0
        m_hat, v_hat = 1 - beta1**t, 1 - beta2**t

        def move(w: Tensor, m: Tensor, v: Tensor) -> Tensor:
            step: Tensor = rate * (m / m_hat) / ((v / v_hat).sqrt() + eps)
            return keep * w - step

        return tree.map(move, params, m, v), {"m": m, "v": v, "t": t}

    return Optimizer("adamw" if decoupled else "adam", init, update, lr)


adamw = partial(adam, weight_decay=0.01, decoupled=True)
"""Loshchilov, Hutter: *Decoupled weight decay regularization*, ICLR 2019."""


def clipped(opt: Optimizer, most: float) -> Optimizer:
    """The optimiser on gradients ``g · min(1, most/‖g‖)``, the norm over all parameters together.

    Pascanu, Mikolov, Bengio: *On the difficulty of training recurrent neural networks*, ICML 2013.
    It is the mean gradient of a mini-batch that is clipped, before weight decay and momentum. That
    bounds a step, not what one example or one client can change, which is ``dp``'s to do.
    """
    positive(grad_clip=most)

    def update(grads: Params, state: Tree, params: Params, scale: Scale) -> tuple[Params, Tree]:
        norm = tree.sq_norm(grads).sqrt()
        # Where the norm is 0, so is the gradient: nothing is divided by it.
        factor = most / torch.clamp(norm, min=most)
        return opt.update(tree.map(lambda g: g * factor, grads), state, params, scale)

    return replace(opt, update=update)


Schedule = Callable[[int], float]
"""Maps the round number, from 0, to a factor on the clients' learning rate."""


def constant() -> Schedule:
    """The same rate in every round."""
    return lambda t: 1.0


def step(factor: float, every: int = 1) -> Schedule:
    """Multiply by ``factor`` once in ``every`` rounds: ``step(0.99)`` takes off a hundredth."""
    positive(factor=factor, every=every)
    return lambda t: float(factor ** (t // every))


def inverse(decay: float) -> Schedule:
    """``1 / (1 + decay · round)``."""
    not_negative(decay=decay)
    return lambda t: 1.0 / (1.0 + decay * t)


def cosine(rounds: int, final: float = 0.0) -> Schedule:
    """Half a cosine from 1 to ``final`` over ``rounds`` rounds."""
    positive(rounds=rounds)

    def factor(t: int) -> float:
        done = min(t / rounds, 1.0)
        return final + (1.0 - final) * 0.5 * (1.0 + math.cos(math.pi * done))

    return factor


@dataclass(frozen=True)
class Plateau:
    """A schedule that depends on how training goes: of the rounds alone, the rate stays as it is.

    The loop multiplies the rate by :meth:`factor_after` what validation data has said so far.
    """

    factor: float
    patience: int
    least: float

    def __call__(self, round: int) -> float:
        """What depends on the round: nothing."""
        return 1.0

    def factor_after(self, losses: Iterable[float]) -> float:
        """The factor on the learning rate after evaluations with these validation losses."""
        best, since, scale = math.inf, 0, 1.0
        for loss in losses:
            if loss < best:
                best, since = loss, 0
            else:
                since += 1
            if since >= self.patience:
                since, scale = 0, max(self.least, scale * self.factor)
        return scale


def plateau(factor: float = 0.5, patience: int = 1, least: float = 0.001) -> Schedule:
    """Multiply by ``factor`` when validation loss did not improve in ``patience`` evaluations.

    After each such cut it waits as long again. The rate never falls below ``least`` of the first.
    The mood predictor of LG-FedAvg has a *learning rate shrink* of 0.5, which is the default here;
    language models are often trained with ``plateau(0.25)``.
    """
    if not 0 < factor < 1:
        raise GlocalError(f"factor of plateau must be between 0 and 1, not {factor}.")
    positive_integers(patience=patience)
    if not 0 <= least < 1:
        raise GlocalError(f"least of plateau must be from 0 to 1, not {least}.")
    return Plateau(factor, patience, least)


SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "constant": constant,
    "cosine": cosine,
    "inverse": inverse,
    "plateau": plateau,
    "step": step,
}
CLIENT_OPTIMISERS: dict[str, Callable[..., Optimizer]] = {"sgd": sgd, "adam": adam, "adamw": adamw}
