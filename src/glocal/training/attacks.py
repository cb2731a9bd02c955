"""What malicious clients may do: attacks to try a federation's robustness with.

An attack is spelt ``"sign-flip(share=0.2)"``. ``share`` of the clients are malicious, drawn by the
seed: the same for every attack, and fewer are always among more. They collude, and know the model
and what they would honestly send; of the others they know how many are in the round. Attacks on
updates change what they send, attacks on data (:mod:`glocal.training.poisoning`) what they train
on. Nobody's validation or test data is touched.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import NormalDist

import torch
from torch import Tensor

from glocal.core import rng, tree
from glocal.core.errors import GlocalError
from glocal.core.spec import parse_call
from glocal.core.types import Params, Uplink
from glocal.core.validation import build, positive, real
from glocal.data.federation import Federation
from glocal.data.split import keyed
from glocal.training import poisoning as poison
from glocal.training.poisoning import Poison, Trigger

SHARE = 0.2


@dataclass(frozen=True)
class Known:
    """What the malicious clients of a round know."""

    updates: Params
    """What they would honestly send, stacked."""
    received: Params
    """The shared parameters of the round, G."""
    start: Params
    """Those that training began with."""
    cohort: int
    """m, the clients in the round."""
    server_lr: float
    """η."""
    key: Tensor
    """Of the round; for what they have in common."""
    keys: Tensor
    """One for each of them."""

    @property
    def malicious(self) -> int:
        """k, how many they are in this round."""
        return len(self.keys)


Send = Callable[[Known], Params]


@dataclass(frozen=True)
class Attack:
    """What malicious clients send, or train on, instead."""

    spec: str
    share: float
    send: Send | None = None
    poison: Poison | None = None
    trigger: Trigger | None = None
    """Of a backdoor: what is stamped on an image, and what it should then be taken for."""

    def __post_init__(self) -> None:
        if not 0 < real(self.share, "an attack's share") < 1:
            raise GlocalError(
                "an attack's share of malicious clients must be above 0 and below 1, not "
                f"{self.share}."
            )

    def on(self, fed: Federation, seed: int) -> Adversary:
        """The attack with the clients that make it."""
        return Adversary(self, malicious(self.share, len(fed), seed))


@dataclass(frozen=True)
class Adversary:
    """An attack, and the malicious clients: indices into the federation, ascending."""

    attack: Attack
    clients: tuple[int, ...]

    def poisoned(self, fed: Federation) -> Federation:
        """The federation as it trains: the malicious clients' training data changed."""
        return fed if self.attack.poison is None else self.attack.poison(fed, self.clients)

    def among(self, ids: Tensor) -> Tensor:
        """Which of a cohort are malicious."""
        return torch.isin(ids, torch.tensor(self.clients, device=ids.device))

    def sent(
        self, uplink: Uplink, received: Params, start: Params, server_lr: float, key: Tensor
    ) -> Uplink:
        """What arrives at the server, the malicious clients' updates changed."""
        malicious = self.among(uplink.ids)
        if self.attack.send is None or not bool(malicious.any()):
            return uplink
        known = Known(
            updates=tree.row(uplink.update, malicious),
            received=received,
            start=start,
            cohort=len(uplink.ids),
            server_lr=server_lr,
            key=key,
            keys=rng.fold(key, uplink.ids[malicious]),
        )

        def put(honest: Tensor, sent: Tensor) -> Tensor:
            return honest.index_put((malicious,), sent.to(honest.dtype))

        return replace(uplink, update=tree.map(put, uplink.update, self.attack.send(known)))


def malicious(share: float, clients: int, seed: int) -> tuple[int, ...]:
    """The malicious clients: the first of an order drawn by the seed."""
    count = round(share * clients)
    if not 0 < count < clients:
        whom = "nobody" if count == 0 else "everybody"
        raise GlocalError(
            f"share={share:g} of {clients} clients makes {whom} malicious: give a share that makes "
            f"1 to {clients - 1} of them so."
        )
    order = rng.permutation(keyed(seed, "malicious clients"), clients)
    return tuple(sorted(order[:count].tolist()))


def sign_flip(scale: float = 1.0, *, share: float = SHARE) -> Attack:
    """Sends ``−scale · Δ``: uphill instead of down."""
    positive(scale=scale)
    return Attack("sign-flip", share, lambda known: tree.map(lambda x: -scale * x, known.updates))


def scale(factor: float = 10.0, *, share: float = SHARE) -> Attack:
    """Sends ``factor · Δ``: its own training, as if it were that of many."""
    by = real(factor, "scale's factor")
    return Attack("scale", share, lambda known: tree.map(lambda x: by * x, known.updates))


def replace_model(*, share: float = SHARE) -> Attack:
    """Sends ``(m / kη) (X − G)``, so that the mean of all becomes a model X of its own.

    Bagdasaryan, Veit, Hua, Estrin, Shmatikov: *How to backdoor federated learning*, AISTATS 2020,
    with k malicious of m. X is worthless: the model that training began with, its numbers shuffled
    within each parameter, another shuffle in every round, so that no round can build on the last.
    """

    def send(known: Known) -> Params:
        factor = known.cohort / (known.malicious * known.server_lr)

        def worthless(name: str, i: int) -> Tensor:
            flat = known.start[name].flatten()
            order = rng.permutation(rng.fold(known.key, i), flat.numel())
            aim = flat[order].view_as(known.start[name]) - known.received[name]
            return (factor * aim).expand(known.malicious, *aim.shape)

        return {name: worthless(name, i) for i, name in enumerate(sorted(known.received))}

    return Attack("replace", share, send)


def gaussian(std: float = 1.0, *, share: float = SHARE) -> Attack:
    """Sends noise of standard deviation ``std`` instead of its update."""
    positive(std=std)

    def send(known: Known) -> Params:
        return {
            name: std * rng.normal(rng.fold(known.keys, i), known.updates[name].shape[1:])
            for i, name in enumerate(sorted(known.updates))
        }

    return Attack("gaussian", share, send)


def little(z: float | None = None, *, share: float = SHARE) -> Attack:
    """Sends the malicious clients' mean less ``z`` of their standard deviations: well hidden.

    Baruch, Baruch, Goldberg: *A little is enough: circumventing defenses for distributed learning*,
    NeurIPS 2019. Mean and deviation of every coordinate are those of what the k malicious would
    honestly send. By default z is the most that leaves enough honest clients further out,

        Φ(z) = (m − k − s) / (m − k),   s = ⌊m/2 + 1⌋ − k.

    A lone malicious client sees no deviation, and sends its own update.
    """
    chosen = None if z is None else real(z, "little's z")

    def send(known: Known) -> Params:
        by = z_max(known.cohort, known.malicious) if chosen is None else chosen
        return tree.map(
            lambda x: (x.mean(0) - by * x.std(0, correction=0)).expand_as(x), known.updates
        )

    return Attack("little", share, send)


def z_max(m: int, k: int) -> float:
    """How far k of m may be off; 3 where they are so many that they need not hide."""
    honest = m - k
    supporters = math.floor(m / 2 + 1) - k
    if honest < 1 or supporters < 1:
        return 3.0
    inside = (honest - supporters) / honest
    return max(0.0, NormalDist().inv_cdf(inside)) if inside > 0 else 0.0


def not_a_number(*, share: float = SHARE) -> Attack:
    """Sends what is not a number, which ends a federation that takes a mean."""
    return Attack(
        "nan", share, lambda known: tree.map(lambda x: torch.full_like(x, math.nan), known.updates)
    )


def label_flip(*, share: float = SHARE) -> Attack:
    """Trains on labels turned round: class y is called C − 1 − y."""
    return Attack("label-flip", share, poison=poison.flipped)


def backdoor(
    target: int = 0, *, rate: float = 0.5, size: int = 2, boost: float = 1.0, share: float = SHARE
) -> Attack:
    """Trains on images with a bright square in a corner and the label ``target``.

    Bagdasaryan, Veit, Hua, Estrin, Shmatikov: *How to backdoor federated learning*, AISTATS 2020;
    the pattern is that of Gu, Dolan-Gavitt, Garg: *BadNets*, 2017. ``rate`` of a malicious client's
    training images have the square, ``size`` pixels wide; its update is sent ``boost`` times. It
    works if honest clients' models take stamped test images of other classes for ``target``.
    """
    trigger = Trigger(target, size)
    positive(boost=boost)
    send = None if boost == 1 else lambda known: tree.map(lambda x: boost * x, known.updates)
    return Attack("backdoor", share, send, poison.backdoored(trigger, rate), trigger)


ATTACKS: dict[str, Callable[..., Attack]] = {
    "backdoor": backdoor,
    "gaussian": gaussian,
    "label-flip": label_flip,
    "little": little,
    "nan": not_a_number,
    "replace": replace_model,
    "scale": scale,
    "sign-flip": sign_flip,
}


def parse(spec: str) -> Attack:
    """The attack that a spec spells."""
    return replace(build("attack", ATTACKS, spec), spec=spec)


def with_share(spec: str, share: float) -> str:
    """The spec, with this share of malicious clients unless it has its own."""
    _, args, kwargs = parse_call(spec)
    if "share" in kwargs:
        return spec
    name = spec.partition("(")[0].strip()
    inside = spec.strip()[len(name) + 1 : -1].strip() if args or kwargs else ""
    return f"{name}({f'{inside}, ' if inside else ''}share={share:g})"
