"""What protects single examples from whoever sees what their client sends: DP-SGD in every step.

Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang: *Deep learning with differential privacy*,
CCS 2016. A mini-batch ``B`` is a Poisson sample of the client's ``n`` examples, each with
probability ``q = b / n``; every example's gradient is clipped, noise is added to their sum, and the
sum is divided by the batch size that is expected, ``b = q n``, with ``z_j ~ N(0, 1)``::

    g = (Σ_{i∈B} g_i · min(1, C / ‖g_i‖) + noise · C · z) / b

It takes the place of the gradient of the mean loss in the steps of any method that reads examples
by their loss alone: within a step, :class:`PrivateLoss` is the client's task, whose loss has that
gradient, and nothing else of the examples is there to be read. Proximal terms, which depend on
parameters alone, are added as ever. Where a step takes several such gradients of one mini-batch
(Ditto's two), each has noise of its own, and ``k`` of them cost what one with ``noise / √k`` would.
"""

from __future__ import annotations

import copy
import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.func import grad, vmap

from glocal.core import rng, secret, tree
from glocal.core.errors import ClientError, GlocalError
from glocal.core.types import Batch, Carry, Downlink, Params
from glocal.core.validation import not_negative, positive
from glocal.data.federation import Federation
from glocal.nn.task import Task
from glocal.slots import accounting
from glocal.slots.accounting import Scheme
from glocal.slots.client import Local, Step
from glocal.slots.privacy import clipped

MANY = 20
"""Clients that differ in their number of examples or rounds from which on RDP accounts for them:
privacy loss distributions take about half a second for each."""

INSTEAD = "use fedavg, fedprox or ditto as the base"


@dataclass(frozen=True, kw_only=True)
class ExamplePrivacy:
    """Differential privacy of single examples: DP-SGD in the clients' steps.

    Whatever a client sends hardly depends on any one of its examples, also for the server. It helps
    where clients have thousands of examples. It does not help with few: at about forty examples a
    client, most of what was learnt is lost.

    Args:
        clip: largest norm of one example's gradient.
        noise: standard deviation of the noise on a mini-batch's sum, in units of the clip.
        delta: the δ of (ε, δ); by default min(1e-5, 1 / (10 n)) for a client with n examples.
    """

    clip: float = 1.0
    noise: float = 1.0
    delta: float | None = None
    name: ClassVar[str] = "dp-sgd"

    def __post_init__(self) -> None:
        positive(clip=self.clip)
        not_negative(noise=self.noise)
        if self.delta is not None and not 0 < self.delta < 1:
            raise GlocalError(f"delta must be above 0 and below 1, not {self.delta}.")

    def gradient(
        self, task: Task, at: Params, batch: Batch, batch_size: int, key: Tensor, noise_key: Tensor
    ) -> Params:
        """``g`` of a mini-batch, whose padding has weight 0.

        Examples have weight 1, or, where a client has fewer than ``batch_size``, so much more that
        their sum over ``batch_size`` is over as many as there are.
        """

        def one(x: Tensor, y: Tensor, number: Tensor) -> Params:
            example = {"x": x.unsqueeze(0), "y": y.unsqueeze(0), "weight": alone}
            own = rng.fold(key, number)
            gradient: Params = grad(lambda w: task.loss(w, example, own))(at)
            return clipped(gradient, self.clip)

        weight, alone = batch["weight"], torch.ones(1, device=key.device)
        each = vmap(one)(batch["x"], batch["y"], torch.arange(len(weight), device=key.device))
        # Of what is not finite the clip leaves no number, and of padding nothing may be left.
        total = tree.map(
            lambda g: (
                torch.where(_like(weight > 0, g), g.nan_to_num(0.0), 0.0) * _like(weight, g)
            ).sum(0),
            each,
        )
        size = torch.where(weight.max() > 0, weight.max(), 1.0)
        drawn = secret.gaussian(noise_key, (tree.count(at),))
        parts = torch.split(drawn, [x.numel() for x in at.values()])
        scale = self.noise * self.clip * size
        noise = {k: scale * z.reshape(at[k].shape) for k, z in zip(at, parts, strict=True)}
        return {k: ((g + noise[k]) / (batch_size or 1)).to(g.dtype) for k, g in total.items()}

    def check(self, local: Local, task: Task, fed: Federation, down: Downlink) -> None:
        """Refuse, before anyone trains, clients whose steps are no plain mini-batch steps."""
        accounting.require()
        releases(self, local, task, fed, down)
        n = int(fed.train.counts().max())
        if self.delta is not None and self.delta * n >= 1:
            raise GlocalError(
                f"δ = {self.delta:g} allows one of {n} examples to be published whole: give "
                f"dp-sgd a delta below 1/{n}, or none."
            )

    def spent(
        self, n: Sequence[int], steps: Sequence[Counter[tuple[int, int]]], *, public: bool = False
    ) -> dict[str, Any]:
        """What each client's examples cost: ``ε`` of each, the largest and the median.

        Of each client, ``steps`` counts by how many gradients a step took and its batch size.
        """
        plans = [
            tuple(
                (Scheme("poisson", n_k, min(b or n_k, n_k)), self.noise / math.sqrt(k), count)
                for (k, b), count in sorted(of_client.items())
                if count and k
            )
            for n_k, of_client in zip(n, steps, strict=True)
        ]
        how = "pld" if len(set(plans)) <= MANY else "rdp"
        deltas = [accounting.usual_delta(n_k) if self.delta is None else self.delta for n_k in n]
        costs = [accounting.composed(p, d, how) for p, d in zip(plans, deltas, strict=True)]
        epsilons = [epsilon for epsilon, _ in costs]
        return {
            "epsilons": epsilons,
            "epsilon": max(epsilons),
            "median": statistics.median(epsilons),
            "vacuous": sum(map(accounting.vacuous, epsilons)),
            "clients": len(epsilons),
            "delta": max(deltas),
            "noise": self.noise,
            "clip": self.clip,
            "neighbours": "add or remove one example of a client",
            "sampling": "Poisson, of a client's examples in each step",
            "accountant": "/".join(sorted({accountant for _, accountant in costs})),
            "noise_key": "seed" if public else "secret",
        }


dp_sgd = ExamplePrivacy


def _like(weight: Tensor, g: Tensor) -> Tensor:
    return weight.view(-1, *(1,) * (g.dim() - 1))


class PrivateLoss(Task):
    """A client's task within one step: of its examples there is the private gradient alone."""

    _gradient: Callable[[Params, Tensor, int], Params]
    _value: float
    calls: int

    @classmethod
    def of(
        cls, task: Task, gradient: Callable[[Params, Tensor, int], Params], value: float
    ) -> PrivateLoss:
        """The task, with losses of that value, which nobody may use, and that gradient."""
        private = cls.__new__(cls)
        private.__dict__.update(copy.copy(task).__dict__)
        private._gradient, private._value, private.calls = gradient, value, 0
        return private

    def loss(self, params: Params, batch: Batch, key: Tensor) -> Tensor:
        """A function of the parameters whose gradient is the private one."""
        at = tree.map(torch.Tensor.detach, params)
        g = self._gradient(at, key, self.calls)
        self.calls += 1
        moved = [(g[k] * (w - at[k])).sum() for k, w in params.items()]
        return torch.stack(moved).sum() + self._value

    def inputs(self, batch: Batch, key: Tensor) -> Tensor:
        """Refused."""
        raise _ReadsExamplesError

    def logits(self, params: Params, x: Tensor, key: Tensor) -> Tensor:
        """Refused."""
        raise _ReadsExamplesError

    def predict(self, params: Params, x: Tensor) -> Tensor:
        """Refused."""
        raise _ReadsExamplesError


class _ReadsExamplesError(Exception):
    """A step wants more of its examples than their loss."""


def private_steps(
    local: Local,
    privacy: ExamplePrivacy,
    value: float = 0.0,
    told: Callable[[int], None] = lambda calls: None,
) -> Local:
    """``local``, whose steps have private gradients, on Poisson samples of the client's examples.

    ``told`` hears how many gradients each step took.
    """

    def on_private_task(step: Step) -> Step:
        def private_step(
            task: Task, down: Downlink, carry: Carry, batch: Batch, key: Tensor
        ) -> Carry:
            noise_key = secret.of_key(key)

            def gradient(at: Params, own: Tensor, number: int) -> Params:
                drawn = secret.fold(noise_key, number)
                return privacy.gradient(task, at, batch, local.batch_size, own, drawn)

            private = PrivateLoss.of(task, gradient, value)
            new = step(private, down, carry, {"weight": batch["weight"]}, key)
            told(private.calls)
            return new

        return private_step

    phases = tuple(phase._replace(step=on_private_task(phase.step)) for phase in local.phases)
    return local.replace(phases=phases, poisson=True)


def releases(
    privacy: ExamplePrivacy, local: Local, task: Task, fed: Federation, down: Downlink
) -> list[int]:
    """How many gradients a step of each phase takes, by taking one; refuses other steps."""
    calls: list[int] = []
    tried = private_steps(local, privacy, math.nan, calls.append)
    device = fed.x.device
    x, y = (part.new_zeros((2, *part.shape[1:])) for part in (fed.x, fed.y_train))
    batch = {"x": x, "y": y, "weight": torch.ones(2, device=device)}
    down = {**down, "params": task.params}
    key = rng.key(0, device)
    try:
        with torch.no_grad():
            carry = tried.start(task, down, tried.init(task, task.params, key))
            for phase in tried.phases:
                carry = phase.step(task, down, carry, batch, key)
    except (_ReadsExamplesError, KeyError) as error:
        raise GlocalError(
            "dp-sgd protects what is learnt by the loss of examples, and the steps of this method "
            f"read them otherwise: {INSTEAD}."
        ) from error
    except GlocalError:
        raise
    except Exception as error:  # whatever a layer raises that cannot be vmapped
        reason = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
        raise ClientError(
            "dp-sgd needs the gradient of each example by itself, and the model cannot give it "
            f"({reason}): use layers that can be vectorised."
        ) from error
    finite = [x.isfinite().all() for x in tree.leaves(carry) if x.is_floating_point()]
    if not all(finite):
        raise GlocalError(
            "dp-sgd makes the gradient of a loss private, not its value, by which the steps of "
            f"this method are weighed: {INSTEAD}."
        )
    return calls


def in_words(spent: dict[str, Any]) -> str:
    """What the clients' examples cost in a sentence, and what that assumes."""
    from glocal.slots.privacy import PUBLIC, shown

    many = f"vacuous for {spent['vacuous']} of {spent['clients']}, " if spent["vacuous"] else ""
    public = f" {PUBLIC}" if spent["noise_key"] == "seed" else ""
    return (
        f"ε = {shown(spent['epsilon'])} for the client whose examples are protected least, "
        f"{shown(spent['median'])} for the median client, {many}at δ = {spent['delta']:.2g}, for "
        f"all that it sends (neighbours: {spent['neighbours']}; sampling: {spent['sampling']}; "
        f"noise {spent['noise']:g} at clip {spent['clip']:.3g}; accountant: "
        f"{spent['accountant']}).{public}"
    )
