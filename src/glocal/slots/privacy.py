"""What protects the clients' updates: two hooks, a state, and what it costs.

``client`` acts on one client's update before it leaves (clip); ``server`` on the combined update
(noise). Clients count alike, and the sum is divided by the cohort's *expected* size: divided by the
actual size it would tell who was there. Where no update is sent (methods that make synthetic data),
a vector that the client sends for it takes the update's place.

McMahan, Ramage, Talwar, Zhang: *Learning differentially private recurrent language models*, ICLR
2018. With a cohort ``C``, an expected size ``m`` and ``z_j ~ N(0, 1)`` for each number::

    Δ = (Σ_{i∈C} Δ_i · min(1, S / ‖Δ_i‖) + noise · S · z) / m

In ``where=local`` every client adds ``noise · S · z_i`` of its own to what it sends. The accountant
assumes noise in every round, so it is added where nobody was drawn, too.

Noise is drawn from a secret key (:mod:`glocal.core.secret`), which is the training's and not in the
server's state: whoever can draw it again can take it off.

Adaptive clipping (Andrew, Thakkar, McMahan, Ramaswamy: *Differentially private learning with
adaptive clipping*, NeurIPS 2021): clients also say whether they are below the clip, as
``b_i = ±1/2``, and the clip follows the quantile ``γ`` of their norms::

    b = 1/2 + (Σ b_i + σ_b · z') / m        S ← S · exp(−η (b − γ))

Both together cost what ``noise`` alone would: the update's own noise is ``(noise^−2 −
(2 σ_b)^−2)^−1/2``. Theirs is ``σ_b = m / 20``; where that is less than the noise multiplier, which
would leave nothing for the update, ``σ_b`` is the multiplier, and the update's noise 1.15 times it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from glocal.core import secret, tree
from glocal.core.errors import GlocalError, unknown
from glocal.core.types import Params, Tree
from glocal.core.validation import not_negative, positive
from glocal.slots import accounting
from glocal.slots.aggregation import weighted_sum
from glocal.slots.weighting import Setting


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """Differential privacy: each update is clipped, and noise added to their sum.

    Whatever is published hardly depends on whether a client took part. It helps where a client's
    presence must not show, and there are hundreds of clients or more. It does not help with few: at
    twenty, a guarantee that means something leaves little to learn. Compute ε first, with ``glocal
    privacy``.

    Args:
        clip: largest norm of a client's whole update (the first, with quantile).
        noise: standard deviation of the noise on the sum, in units of the clip.
        where: central (the server adds the noise) or local (each client does).
        quantile: let the clip follow this quantile of the clients' norms.
        clip_rate: how fast it does.
        delta: the δ of (ε, δ); by default min(1e-5, 1 / (10 K)).
        epsilon: budget: training ends before the round that would exceed it.
    """

    clip: float = 1.0
    """``S``, the largest norm of a client's whole update (the first, with ``quantile``)."""
    noise: float = 1.0
    """The noise on the sum has a standard deviation of ``noise · clip``."""
    where: str = "central"
    """``central``: the server adds it; ``local``: each client does, to what it sends."""
    quantile: float | None = None
    """Let the clip follow this quantile of the clients' norms."""
    clip_rate: float = 0.2
    """How fast it does."""
    delta: float | None = None
    """``min(1e-5, 1 / (10 K))`` by default."""
    epsilon: float | None = None
    """A budget: training ends before the round that would exceed it."""
    name: ClassVar[str] = "dp"

    def __post_init__(self) -> None:
        positive(clip=self.clip, clip_rate=self.clip_rate)
        not_negative(noise=self.noise)
        if self.where not in ("central", "local"):
            raise unknown("place of the noise", self.where, ("central", "local"))
        for name, share in (("quantile", self.quantile), ("delta", self.delta)):
            if share is not None and not 0 < share < 1:
                raise GlocalError(f"{name} must be above 0 and below 1, not {share}.")
        if self.quantile is not None and self.where == "local":
            raise GlocalError(
                "the quantile is followed by a count that the server makes noisy, so it cannot go "
                "with where=local: leave quantile out and give a clip."
            )
        if self.epsilon is not None:
            positive(epsilon=self.epsilon)

    def init(self, setting: Setting) -> Tree:
        """What the server keeps: the clip, and the rounds that count."""
        return {"clip": torch.tensor(float(self.clip)), "rounds": torch.tensor(0)}

    def client(self, state: Tree, update: Params, key: Tensor) -> tuple[Params, Tree]:
        """One client's update, made fit to send, and whether it was below the clip, if asked."""
        bound = state["clip"].to(key.device)
        said = {} if self.quantile is None else {"below": (norm(update) <= bound).float() - 0.5}
        sent = clipped(update, bound)
        return (noisy(sent, self.noise * bound, key) if self.where == "local" else sent), said

    def server(
        self, state: Tree, update: Params, said: Tree, setting: Setting, key: Tensor
    ) -> tuple[Params, Tree]:
        """The updates' sum over ``m``, made fit to publish, and the new state.

        ``said`` is the sum of what clients said; it is empty where nobody was drawn.
        """
        m = setting.taking_part * setting.clients
        z, count_noise = self.split(m)
        bound = state["clip"].to(key.device)
        if self.where == "central":
            update = noisy(update, z * bound / m, secret.fold(key, 0))
        clip = state["clip"]
        if self.quantile is not None:
            below = said.get("below", torch.tensor(0.0)).cpu()
            wobble = count_noise * secret.gaussian(secret.fold(key, 1), ()).cpu()
            share = 0.5 + (below + wobble) / m
            clip = (clip * torch.exp(-self.clip_rate * (share - self.quantile))).to(clip.dtype)
        return update, {"clip": clip, "rounds": state["rounds"] + 1}

    def mean(
        self,
        state: Tree,
        messages: Params,
        like: Params,
        ids: Tensor,
        p: Tensor,
        setting: Setting,
        key: Tensor,
        said: Tree | None = None,
    ) -> tuple[Params, Tree]:
        """The mean of a cohort's messages, made fit to publish, and the new state.

        ``messages`` are the stacked updates, or what takes their place; an empty cohort's mean is
        zeros of the shapes of ``like``. With ``said``, clients have protected their messages
        themselves; those without noise are clipped again, which changes none that were.
        The ``key`` is secret, and of this round.
        """
        if len(ids) == 0:
            return self.server(state, tree.zeros(like), {}, setting, secret.fold(key, 1))
        if said is None:
            keys = secret.fold(key, 0, ids)
            messages, said = self.protected(state, messages, keys)
        elif self.where == "central":
            bound = state["clip"].to(key.device)
            messages = torch.func.vmap(partial(clipped, bound=bound))(messages)
        total = tree.map(lambda x: weighted_sum(x, p), messages)
        said = tree.map(lambda x: x.sum(0), said)
        return self.server(state, total, said, setting, secret.fold(key, 1))

    def protected(self, state: Tree, messages: Params, keys: Tensor) -> tuple[Params, Tree]:
        """Clients' stacked messages, made fit to send, and what each of them says of it."""
        protected: tuple[Params, Tree] = torch.func.vmap(partial(self.client, state))(
            messages, keys
        )
        return protected

    def split(self, m: float) -> tuple[float, float]:
        """The update's noise multiplier and the count's noise: together ``noise``."""
        if self.quantile is None or self.noise == 0:
            return self.noise, 0.0
        count_noise = max(m / 20, self.noise)
        return (self.noise**-2 - (2 * count_noise) ** -2) ** -0.5, count_noise

    def scheme(self, setting: Setting) -> accounting.Scheme:
        """What the accountant must know of the sampling."""
        if self.where == "local":
            return accounting.Scheme("local", setting.clients, setting.clients)
        sampled = setting.fraction * setting.clients
        return accounting.Scheme(setting.sampling, setting.clients, sampled)

    def cost(self, setting: Setting, rounds: int) -> tuple[float, str]:
        """ε of so many rounds, and the accountant."""
        return accounting.bound(
            self.scheme(setting), float(self.noise), rounds, self.delta_for(setting)
        )

    def delta_for(self, setting: Setting) -> float:
        """As given, or the usual one."""
        return accounting.usual_delta(setting.clients) if self.delta is None else self.delta

    def check(self, setting: Setting) -> None:
        """Refuse, before anyone trains, what cannot be accounted for or afforded."""
        accounting.require()
        if setting.answering is None:
            raise GlocalError(
                f"{self.name} divides by the number of clients that is expected to answer, which "
                "must be the same in all rounds: leave away(…) out, or use dropout or on-off."
            )
        one, _ = self.cost(setting, 1)
        if self.epsilon is not None and one > self.epsilon:
            raise GlocalError(
                f"the first round of {self.name}(noise={self.noise:g}) would cost ε = {one:.3g}, "
                f"more than the budget of {self.epsilon:g}: add noise, draw fewer clients, or "
                "raise epsilon ('glocal privacy' gives the noise for an ε)."
            )

    def allowed(self, setting: Setting) -> int:
        """How many of the rounds asked for the budget allows; all, where there is none."""
        if self.epsilon is None or self.cost(setting, setting.rounds)[0] <= self.epsilon:
            return setting.rounds
        delta = self.delta_for(setting)
        return accounting.rounds_for(
            self.epsilon, self.scheme(setting), float(self.noise), delta, most=setting.rounds
        )

    def spent(self, state: Tree, setting: Setting, *, public: bool = False) -> dict[str, Any]:
        """What the rounds so far cost, skipped ones included, and what that assumes.

        ``public``: the noise is that of the seed.
        """
        rounds = int(state["rounds"])
        epsilon, accountant = self.cost(setting, rounds)
        scheme = self.scheme(setting)
        budget = {"budget": self.epsilon, "budget_spent": rounds < setting.rounds}
        return {
            "epsilon": epsilon,
            "delta": self.delta_for(setting),
            "vacuous": accounting.vacuous(epsilon),
            "noise": self.noise,
            "clip": float(state["clip"]),
            "where": self.where,
            "neighbours": scheme.neighbours,
            "sampling": str(scheme),
            "accountant": accountant,
            "rounds": rounds,
            **({} if setting.answering == 1 else {"answering": setting.answering}),
            "noise_key": "seed" if public else "secret",
            **(budget if self.epsilon is not None else {}),
        }


dp = Privacy

PUBLIC = (
    "The noise was drawn from the seed, so that the run can be repeated: whoever has the seed can "
    "take it off, and is kept from nothing."
)


def norm(update: Params) -> Tensor:
    """``‖Δ‖`` over all parameters as one vector, in double precision: squares can be large."""
    parts = [torch.linalg.vector_norm(x, dtype=torch.float64) for _, x in sorted(update.items())]
    total: Tensor = torch.linalg.vector_norm(torch.stack(parts)) if parts else torch.zeros(())
    return total


_BELOW = 1 - 2.0**-20
"""Rounding must not lift a clipped norm above the clip."""


def clipped(update: Params, bound: Tensor | float) -> Params:
    """``Δ · min(1, S / ‖Δ‖)``."""
    size = norm(update)
    fits = size <= bound

    def scaled(x: Tensor) -> Tensor:
        # Divided first: S / ‖Δ‖ may be too small a number to be precise.
        return torch.where(fits, x, (x / size * (_BELOW * bound)).to(x.dtype))

    return {k: scaled(x) for k, x in update.items()}


def noisy(update: Params, scale: Tensor | float, key: Tensor) -> Params:
    """Gaussian noise of standard deviation ``scale`` on every number."""
    keys = {k: secret.fold(key, i) for i, k in enumerate(sorted(update))}
    return {
        k: (x + scale * secret.gaussian(keys[k], tuple(x.shape))).to(x.dtype)
        for k, x in update.items()
    }


def in_words(spent: dict[str, Any]) -> str:
    """What a run's privacy came to, in a sentence or two, and what that assumes."""
    where = "every update by itself" if spent["where"] == "local" else "what the server publishes"
    protected = (
        f"ε = {shown(spent['epsilon'])} at δ = {spent['delta']:.2g} after {spent['rounds']} "
        f"round{'' if spent['rounds'] == 1 else 's'}, for {where}"
    )
    absence = (
        f"; {spent['answering']:.0%} of those drawn are expected to answer, whatever their data"
        if "answering" in spent
        else ""
    )
    assumed = (
        f"neighbours: {spent['neighbours']}; sampling: {spent['sampling']}; noise "
        f"{spent['noise']:g} at clip {spent['clip']:.3g}; accountant: {spent['accountant']}"
        f"{absence}"
    )
    ended = (
        f" The budget of ε = {spent['budget']:g} is spent: training ended after round "
        f"{spent['rounds']}."
        if spent.get("budget_spent")
        else ""
    )
    public = f" {PUBLIC}" if spent.get("noise_key") == "seed" else ""
    return f"{protected} ({assumed}).{ended}{public}"


def shown(epsilon: float) -> str:
    """An ε, and the word where it protects nobody."""
    if math.isinf(epsilon):
        return "∞ (vacuous: no protection)"
    number = f"{epsilon:.3g}" if epsilon < 1e5 else f"{epsilon:.1e}"
    return f"{number} (vacuous)" if accounting.vacuous(epsilon) else number
