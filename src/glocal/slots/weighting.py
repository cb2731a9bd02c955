"""How much each client of a cohort counts: fairness lives in this slot.

A weighting keeps a state across rounds and turns what the cohort sent into weights. They sum to one
but where a method takes a step of its own length (q-FedAvg's original, FedMGDA+). Those that follow
losses compute on the CPU in double precision, whatever trains the clients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.core.types import Tree, Uplink
from glocal.data.schema import Schema


@dataclass(frozen=True)
class Setting:
    """What the server knows of the federation before the first round."""

    clients: int
    """K."""
    fraction: float
    """C, the share of clients in a round (the sampling probability, where it is one)."""
    rounds: int
    """T."""
    sampling: str = "fixed"
    """How clients are drawn, as privacy accounting knows it: fixed, poisson, or something else."""
    schema: Schema | None = None
    """What an example looks like, for methods that make some on the server."""
    answering: float | None = 1.0
    """The share of those drawn that answers, as expected; None: it depends on the round."""

    @property
    def taking_part(self) -> float:
        """The share of clients that is in a round and answers, as expected."""
        return self.fraction * (1.0 if self.answering is None else self.answering)


@dataclass(frozen=True)
class Weighting:
    """``weigh(state, uplink)`` gives one weight per client of the cohort and the new state."""

    name: str
    weigh: Callable[[Tree, Uplink], tuple[Tensor, Tree]]
    init: Callable[[Setting], Tree] = lambda setting: {}
    needs_loss: bool = False
    """Whether clients must send the loss of the model they received."""
    standing: Callable[[Tree, Tensor], Tensor] | None = None
    """Of a weighting that decides before it sees: ``standing(state, ids)`` is what it would give
    these clients as things stand, summing to one."""
    own_step: str | None = None
    """The setting by which the step has a length of its own, which an adaptive server optimiser
    would undo."""


def losses(uplink: Uplink) -> Tensor:
    """The received model's loss at each client of the cohort, in double precision."""
    if uplink.loss is None:
        raise RuntimeError("this weighting needs losses: set needs_loss=True in it")
    loss = uplink.loss.detach().cpu().to(torch.float64)
    if not bool(loss.isfinite().all()):
        raise GlocalError("a client's loss is not finite: lower the learning rate.")
    if bool((loss < 0).any()):
        raise GlocalError(
            "a client's loss is negative, and fair weightings need losses of 0 or more: "
            "use by-examples or uniform, or another loss."
        )
    return loss


def renormalised(p: Tensor, ids: Tensor) -> Tensor:
    """The weights of some clients, made to sum to one; alike if they have none at all."""
    some = p[ids.cpu()]
    total = some.sum()
    return some / total if float(total) > 0 else torch.full_like(some, 1 / len(some))


def tilted(uplink: Uplink, tilt: Tensor) -> Tensor:
    """``p_i ∝ n_i exp(tilt_i)``; no tilt is by examples."""
    n = uplink.n.cpu().to(torch.float64)
    tilt = tilt.clamp(max=torch.finfo(tilt.dtype).max)  # a number, also once it overflowed
    # The largest tilt taken off all of them changes nothing but that no number overflows.
    p = n * (tilt - tilt.max()).exp() if bool(tilt.isfinite().any()) else n
    return (p / p.sum()).to(uplink.n.device)


def squared_norms(uplink: Uplink) -> Tensor:
    """``‖Δ_i‖²`` of each client of the cohort."""
    return tree.row_sq_norms(uplink.update, uplink.n, dtype=torch.float32)


def everybody(setting: Setting, name: str, instead: str) -> None:
    """Refuse sampling, for a weighting that needs all clients in every round."""
    if setting.fraction < 1:
        raise GlocalError(
            f"{name} needs every client in every round, and {setting.fraction:g} of them would be "
            f"sampled: use {instead}, or all clients."
        )
    if setting.answering != 1:
        raise GlocalError(
            f"{name} needs every client in every round, and some would be away or not answer: use "
            f"{instead}, or leave availability and stragglers out."
        )


def by_examples() -> Weighting:
    """In proportion to training examples: ``p_i = n_i / Σ n`` (McMahan et al., AISTATS 2017).

    Whoever has more examples counts more. It helps where an example is worth the same everywhere,
    and is the default. It does not help small clients with data of their own kind.
    """

    def weigh(state: Tree, uplink: Uplink) -> tuple[Tensor, Tree]:
        n = uplink.n.to(torch.float32)
        return n / n.sum(), state

    return Weighting("by-examples", weigh)


def by_update_norm() -> Weighting:
    """In proportion to the squared norm of the update: ``p_i ∝ ‖Δ_i‖²``.

    The client with most to change counts most (Liang et al., *Think locally, act globally*, 2019
    version). Departure: theirs is the norm of the shared layers' gradient; an update is the sum of
    a round's steps, which for one step of plain SGD gives the same weights.

    Whoever has to change the model most counts most. It helps where few clients have what the model
    has not learnt. It does not help where large updates are noise, or malicious.
    """

    def weigh(state: Tree, uplink: Uplink) -> tuple[Tensor, Tree]:
        norms = squared_norms(uplink)
        # Nobody moved: all count alike.
        norms = torch.where(norms.sum() > 0, norms, torch.ones_like(norms))
        return norms / norms.sum(), state

    return Weighting("grad-norm", weigh)


def uniform() -> Weighting:
    """Every client the same: ``p_i = 1/|S|``.

    All clients count alike, however many examples they have. It helps where each client is to be
    served, not each example, and privacy requires it. It does not help where small clients have
    noisy updates.
    """

    def weigh(state: Tree, uplink: Uplink) -> tuple[Tensor, Tree]:
        n = uplink.n.to(torch.float32)
        return torch.full_like(n, 1.0 / len(n)), state

    return Weighting("uniform", weigh)


def uniform_expected() -> Weighting:
    """Every client the same, over the number expected to answer: ``p_i = 1 / (C · K)`` if all do.

    With Poisson sampling they sum to one on average alone. Privacy needs this: a mean over the
    actual size would tell which clients were there, by what the others count for.
    """

    def init(setting: Setting) -> Tree:
        return {"m": torch.tensor(setting.taking_part * setting.clients)}

    def weigh(state: Tree, uplink: Uplink) -> tuple[Tensor, Tree]:
        n = uplink.n.to(torch.float32)
        return torch.full_like(n, 1.0 / float(state["m"])), state

    return Weighting("uniform", weigh, init)
