"""An adversary against protected attributes: a representation that does not give them away.

Liang et al.: *Think locally, act globally: federated learning with local and global
representations*, 2020, section 5.5 and appendix B, after Louppe, Kagan, Cranmer: *Learning to pivot
with adversarial networks*, NeurIPS 2017. The adversary a predicts a person's attributes p from the
representation h, and the model is trained against it::

    min over (ℓ, g)  max over a   L_task(ℓ, g) − λ · L_adv(ℓ, a)

with L_adv the mean over attributes of the cross-entropy. ``how="reversal"`` takes one gradient of
both on each mini-batch, which is reversed where it goes from a into h (Ganin, Lempitsky:
*Unsupervised domain adaptation by backpropagation*, ICML 2015); ``how="alternating"`` lets a take
``steps`` steps first, each on its share of the mini-batch, and the model its own on all of it
against a as it then is. So a large ``batch_size`` with many steps lets a keep up with h.

Each client has an adversary of its own, which never leaves it; with ``shared=true`` all have one,
which is averaged as the model is. λ is the λ_global of the paper's version of 2019 (in joint
training); its λ_local (in pre-training) is the weight of ``pretrain``, so that ``+adversary(lam=1)
+pretrain(epochs=10, weight=0)`` pre-trains model and adversary without one acting on the other.

Departures: the paper's adversary has dropout, its released code has none, nor has this one. There
the adversary's own loss is multiplied by λ, too (30), which is a learning rate of 3; here ``rate``
says how fast it learns.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor
from torch.nn import functional

from glocal.core import rng
from glocal.core.errors import GlocalError, unknown
from glocal.core.types import Batch, Params
from glocal.core.validation import integer, not_negative, positive
from glocal.nn.dense import dense, dense_init
from glocal.nn.models.shapes import WIDEST
from glocal.nn.optim import Optimizer, adam, sgd
from glocal.nn.task import Task, weighted_mean
from glocal.slots.auxiliaries import PREFIX
from glocal.slots.auxiliary import Auxiliary, Dimensions

HOW = ("reversal", "alternating")
OPTIMISERS: dict[str, Callable[[float], Optimizer]] = {"sgd": sgd, "adam": adam}
TRUNK, HEAD = f"{PREFIX}.trunk", f"{PREFIX}.of-"
"""What the names of its parameters begin with: the hidden layers', and those of an attribute."""

Attribute = tuple[str, int]
"""The name of an attribute, and how many values it has."""


def adversary(
    lam: float = 1.0,
    *,
    how: str = "reversal",
    attributes: str | None = None,
    hidden: int = 32,
    layers: int = 3,
    rate: float = 1.0,
    steps: int = 1,
    optimiser: str | None = None,
    shared: bool = False,
    at: str | None = None,
) -> Auxiliary:
    """An adversary against protected attributes, which the representation is to hide.

    It helps to make predictions more even: the parity gap of sex halved on UCI Adult. It does not
    help to hide the attributes: a fresh adversary found them again, and found more the stronger the
    one in training was fought.

    Args:
        lam: how much hiding counts against the task; at 0 it changes nothing in the model.
        how: reversal (both learn at once) or alternating (the adversary first).
        attributes: which to hide, as in sex|race; by default all.
        hidden: width of the adversary's hidden layers.
        layers: how many hidden layers; 0 for a linear adversary.
        rate: its learning rate, as a multiple of the client's.
        steps: of the adversary before each of the model's, if alternating, each on its share of
            the mini-batch.
        optimiser: sgd or adam; by default the client's.
        shared: whether clients share one adversary, which is averaged, or each has its own.
        at: layer whose input is the representation; by default the first after the private ones.
    """
    not_negative(lam=lam)
    positive(rate=rate)
    integer(hidden, "hidden", 1, WIDEST)
    integer(layers, "layers", 0, 100)
    integer(steps, "steps", 1, 1000)
    if how not in HOW:
        raise unknown("way to train an adversary", how, HOW)
    if optimiser is not None and optimiser not in OPTIMISERS:
        raise unknown("optimiser", optimiser, OPTIMISERS)
    if steps != 1 and how != "alternating":
        raise GlocalError("steps= goes with how=alternating: reversal steps with the model.")
    asked = None if attributes is None else [name.strip() for name in attributes.split("|")]

    def check(dims: Dimensions) -> None:
        chosen(dims.schema.attributes, asked)

    def init(key: Tensor, dims: Dimensions) -> Params:
        widths = [math.prod(dims.h), *[hidden] * layers]
        a = dense_init(rng.fold(key, 0), widths, TRUNK)
        for place, size in chosen(dims.schema.attributes, asked).items():
            a |= dense_init(rng.fold(key, 1 + place), [widths[-1], size], f"{HEAD}{place}")
        return a

    def loss(task: Task, a: Params, h: Tensor, batch: Batch, key: Tensor) -> Tensor:
        losses = [
            functional.cross_entropy(logits, batch["attributes"][:, place], reduction="none")
            for place, logits in guesses(a, h).items()
        ]
        return weighted_mean(sum(losses[1:], losses[0]) / len(losses), batch["weight"])

    return Auxiliary(
        name="adversary",
        init=init,
        loss=loss,
        weight=-lam,
        check=check,
        at=at,
        rate=rate,
        own_steps=steps if how == "alternating" else 0,
        optimiser=None if optimiser is None else OPTIMISERS[optimiser],
        shared=shared,
    )


def chosen(known: tuple[Attribute, ...], asked: list[str] | None) -> dict[int, int]:
    """How many values each attribute has that is to be hidden, by its place among all."""
    if not known:
        raise GlocalError(
            "adversary hides protected attributes, and this data has none: name columns of a table "
            "with protected=, or use adult."
        )
    names = [name for name, _ in known]
    for name in asked or ():
        if name not in names:
            raise unknown("protected attribute", name, names)
    return {place: size for place, (name, size) in enumerate(known) if name in (asked or names)}


def guesses(a: Params, h: Tensor) -> dict[int, Tensor]:
    """The adversary's logits [n, values] of each attribute that it was made for, by its place."""
    h = dense(a, h.flatten(1), TRUNK)
    h = functional.relu(h) if any(name.startswith(TRUNK) for name in a) else h
    heads = {name.removeprefix(HEAD).partition(".")[0] for name in a if name.startswith(HEAD)}
    return {place: dense(a, h, f"{HEAD}{place}") for place in sorted(map(int, heads))}
