"""What a plan costs in privacy, before anyone trains: ε from noise, noise from ε, rounds from ε.

A mechanism is (ε, δ)-differentially private if for neighbouring federations ``D, D'`` and any set
of outcomes ``P[M(D) ∈ A] ≤ e^ε P[M(D') ∈ A] + δ`` (Dwork, Roth: *The algorithmic foundations of
differential privacy*, 2014). Here a record is a client, all of its data and all of its rounds; an
outcome is everything the server publishes. A round is a Gaussian mechanism on the sum of clipped
updates, noise of standard deviation ``noise · clip``, and rounds are composed by ``dp-accounting``:

- ``poisson``: each client is drawn independently. Neighbours: add or remove one client, which
  moves the sum by ``clip``. Privacy loss distributions (PLD: Koskela, Jälkö, Honkela: *Computing
  tight differential privacy guarantees using FFT*, AISTATS 2020; Doroshenko et al.: *Connect
  the dots*, PETS 2022), which are all but exact; Rényi (RDP: Mironov, Talwar, Zhang: *Rényi
  differential privacy of the sampled Gaussian mechanism*, 2019) to search.
- ``all``: everybody in every round. Neighbours as above; exact (Balle, Wang: *Improving the
  Gaussian mechanism for differential privacy*, ICML 2018).
- ``fixed``: exactly m of N. Neighbours: replace one client by another, which moves the sum by
  twice the clip, so the noise counts as ``noise / 2``. RDP alone (Wang, Balle, Kasiviswanathan:
  *Subsampled Rényi differential privacy and analytical moments accountant*, AISTATS 2019, Theorem
  27), or as if everybody were drawn where that is less: the library has no PLD for it.
- ``local``: each update is noisy when it leaves, and is watched by the server, which knows whose it
  is. Neighbours: replace one client's data, ``noise / 2``; sampling hides nothing, and a client may
  be in every round.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

from glocal.core.errors import GlocalError, unknown
from glocal.core.validation import positive_integers

SAMPLINGS = ("poisson", "fixed", "all", "local")

VACUOUS_ODDS = 1e8
"""The factor on an attacker's odds, e^ε, above which ε protects nobody.

An attacker who held it for one in a hundred million that a client took part, less than picking at
random among the clients of the largest federation, may be left with even odds.
"""

LEAST_NOISE = 1e-4
"""Below this a single round's ε is beyond 10^7, and the accountants' numbers overflow."""

LARGEST_BUDGET = 1e6
"""No ε above this is searched for: it would protect nobody."""

LARGEST_PLD = 100.0
"""Above this ε nothing is gained by a better bound, and its numbers grow too large."""


@dataclass(frozen=True)
class Scheme:
    """How clients are drawn: ``sampled`` of ``clients`` in a round, on average where it varies."""

    sampling: str
    clients: int
    sampled: float

    def __post_init__(self) -> None:
        if self.sampling not in SAMPLINGS:
            raise unknown("sampling that can be accounted for", self.sampling, SAMPLINGS)
        positive_integers(clients=self.clients)
        if not 0 < self.sampled <= self.clients:
            raise GlocalError(
                f"{self.sampled:g} clients a round cannot be drawn from {self.clients}: ask for "
                "fewer."
            )
        if self.sampling in ("poisson", "fixed") and self.sampled == self.clients:
            object.__setattr__(self, "sampling", "all")

    @property
    def neighbours(self) -> str:
        """Which federations must look alike."""
        by = {"fixed": "replace one client", "local": "replace one client's data"}
        return by.get(self.sampling, "add or remove one client")

    def __str__(self) -> str:
        """In words."""
        return {
            "poisson": f"Poisson, {self.sampled:g} of {self.clients} clients on average",
            "fixed": f"exactly {self.sampled:g} of {self.clients} clients",
            "all": f"all {self.clients} clients in every round",
            "local": "none counted: the server sees whose update it is",
        }[self.sampling]


def usual_delta(clients: int) -> float:
    """``min(1e-5, 1 / (10 K))``: a guarantee that fails for less than a tenth of one client."""
    return min(1e-5, 1 / (10 * clients))


def vacuous(epsilon: float) -> bool:
    """Whether an ε protects nobody: it allows an attacker's odds to grow 10^8-fold."""
    return not epsilon <= math.log(VACUOUS_ODDS)


def epsilon(scheme: Scheme, noise: float, rounds: int, delta: float, how: str = "pld") -> float:
    """What ``rounds`` rounds cost; ``how``: pld (the best bound there is) or rdp."""
    return bound(scheme, noise, rounds, delta, how)[0]


@lru_cache(maxsize=4096)
def bound(
    scheme: Scheme, noise: float, rounds: int, delta: float, how: str = "pld"
) -> tuple[float, str]:
    """ε, and the accountant it comes from. Both are upper bounds, so the smaller one holds."""
    _check(noise=noise, delta=delta)
    if delta * scheme.clients >= 1:
        raise GlocalError(
            f"δ = {delta:g} allows one of {scheme.clients} clients to be published whole: give a "
            f"delta below 1/{scheme.clients}, as {usual_delta(scheme.clients):.2g}."
        )
    if how not in ("pld", "rdp"):
        raise unknown("accountant", how, ("pld", "rdp"))
    if rounds == 0:
        return 0.0, "exact"
    if noise < LEAST_NOISE:
        return math.inf, "exact"
    rdp = _rdp(scheme, noise, rounds, delta)
    if how == "rdp" or rdp > LARGEST_PLD:
        return rdp, "RDP"
    if scheme.sampling == "poisson":
        other = _pld(scheme, noise, rounds, delta, rdp), "PLD"
    else:  # as if everybody were drawn: right for all and local, no less for a fixed number
        other = _gaussian(_per_sensitivity(scheme, noise), rounds, delta), "exact"
    return min(other, (rdp, "RDP"))


Mechanism = tuple[Scheme, float, int]
"""A sampled Gaussian mechanism, its noise multiplier, and how often it is used."""


@lru_cache(maxsize=4096)
def composed(
    mechanisms: tuple[Mechanism, ...], delta: float, how: str = "pld"
) -> tuple[float, str]:
    """ε of different mechanisms one after another, and the accountant it comes from."""
    if not mechanisms:
        return 0.0, "exact"
    if len(mechanisms) == 1:
        scheme, noise, count = mechanisms[0]
        return bound(scheme, noise, count, delta, how)
    if any(noise < LEAST_NOISE for _, noise, _ in mechanisms):
        return math.inf, "exact"
    curves = [(count, *_curve(scheme, noise)) for scheme, noise, count in mechanisms]
    orders, total = curves[0][1], sum(count * one for count, _, one in curves)
    with _quiet():
        rdp = float(require().rdp.compute_epsilon(orders, total, delta)[0])
    if how == "rdp" or rdp > LARGEST_PLD:
        return rdp, "RDP"
    grid = _grid(rdp)
    losses = [
        _losses(scheme.sampled / scheme.clients, noise, grid).self_compose(count)
        for scheme, noise, count in mechanisms
    ]
    with _quiet():
        pld = reduce(lambda a, b: a.compose(b), losses).get_epsilon_for_delta(delta)
    return min((float(pld), "PLD"), (rdp, "RDP"))


def noise_for(budget: float, scheme: Scheme, rounds: int, delta: float) -> float:
    """The least noise multiplier (within a thousandth) at which ``rounds`` rounds cost no more."""
    _check(delta=delta, epsilon=budget)
    if budget > LARGEST_BUDGET:
        raise GlocalError(
            f"ε = {budget:g} protects nobody, so no noise is looked for: ask for an epsilon of "
            f"{math.log(VACUOUS_ODDS):.0f} or less."
        )

    def cost(by: str) -> Callable[[float], float]:
        return lambda z: epsilon(scheme, z, rounds, delta, by)

    rough = _crossing(cost("rdp"), budget, 1.0)  # the cheap one finds where to look
    return _crossing(cost("pld"), budget, rough)


def _crossing(cost: Callable[[float], float], budget: float, about: float) -> float:
    """Where a falling ``cost`` comes down to ``budget``: there, or just behind it."""
    from scipy.optimize import brentq

    def excess(log_z: float) -> float:
        return math.log(min(1e9, max(1e-9, cost(math.exp(log_z)))) / budget)

    low = high = math.log(about)
    while excess(high) > 0:
        low, high = high, high + math.log(2)
        if high > math.log(1e6):
            raise GlocalError(
                f"no noise brings ε down to {budget:g}: ask for fewer rounds, or a larger epsilon "
                "or delta."
            )
    while excess(low) <= 0:
        low, high = low - math.log(2), low
    z = math.exp(brentq(excess, low, high, xtol=2e-4))
    while cost(z) > budget:
        z *= 1.0005
    return z


MANY = 1_000_000
"""Rounds beyond which nobody counts."""


def rounds_for(budget: float, scheme: Scheme, noise: float, delta: float, most: int = MANY) -> int:
    """How many rounds cost no more than ``budget``: 0 if one is too many, ``most`` at the most.

    Exact below a thousand, and then up to a thousandth less.
    """
    _check(noise=noise, delta=delta, epsilon=budget)
    few = 0
    for by in ("rdp", "pld"):  # the cheap one finds where to look
        if few < most and epsilon(scheme, noise, most, delta, by) <= budget:
            return most
        step = max(1, few)
        while few + step < most and epsilon(scheme, noise, few + step, delta, by) <= budget:
            few, step = few + step, 2 * step
        many = min(most, few + step)
        while many - few > max(1, few // 1000):
            middle = (few + many) // 2
            if epsilon(scheme, noise, middle, delta, by) <= budget:
                few = middle
            else:
                many = middle
    return few


def require() -> Any:
    """The library, or a sentence that says how to get it."""
    try:
        import dp_accounting
        import dp_accounting.pld
        import dp_accounting.rdp
    except ImportError as error:
        raise GlocalError(
            "what privacy costs is computed by dp-accounting, which is not installed: "
            "pip install 'glocal[privacy]'."
        ) from error
    return dp_accounting


def _check(**values: float) -> None:
    for name, value in values.items():
        if name == "delta" and not 0 < value < 1:
            raise GlocalError(f"delta must be above 0 and below 1, not {value}.")
        if name == "noise" and not (math.isfinite(value) and value >= 0):
            raise GlocalError(f"noise must be 0 or more, not {value}.")
        if name == "epsilon" and not (math.isfinite(value) and value > 0):
            raise GlocalError(f"epsilon must be above 0, not {value}.")


def _per_sensitivity(scheme: Scheme, noise: float) -> float:
    """The noise over how far neighbours move the sum: a replaced client by twice the clip."""
    return noise / 2 if scheme.neighbours.startswith("replace") else noise


def _gaussian(noise: float, rounds: int, delta: float) -> float:
    """Without sampling, T rounds of noise z are one of ``z / √T``."""
    return float(require().get_epsilon_gaussian(noise / math.sqrt(rounds), delta))


@lru_cache(maxsize=256)
def _curve(scheme: Scheme, noise: float) -> tuple[Any, Any]:
    """Rényi orders, and one round's divergence at each: rounds add up."""
    dp = require()
    gaussian = dp.GaussianDpEvent(_per_sensitivity(scheme, noise))
    relation, event = dp.NeighboringRelation.ADD_OR_REMOVE_ONE, gaussian
    if scheme.sampling == "poisson":
        event = dp.PoissonSampledDpEvent(scheme.sampled / scheme.clients, gaussian)
    if scheme.sampling == "fixed":
        relation = dp.NeighboringRelation.REPLACE_ONE
        event = dp.SampledWithoutReplacementDpEvent(scheme.clients, round(scheme.sampled), gaussian)
    accountant = dp.rdp.RdpAccountant(neighboring_relation=relation)
    with _quiet():
        accountant.compose(event)
    return accountant.orders, accountant.rdp


def _rdp(scheme: Scheme, noise: float, rounds: int, delta: float) -> float:
    try:
        orders, one = _curve(scheme, noise)
        with _quiet():
            return float(require().rdp.compute_epsilon(orders, rounds * one, delta)[0])
    except OverflowError:  # next to no noise: no number holds it
        return math.inf


def _pld(scheme: Scheme, noise: float, rounds: int, delta: float, rough: float) -> float:
    one = _losses(scheme.sampled / scheme.clients, noise, _grid(rough))
    with _quiet():
        return float(one.self_compose(rounds).get_epsilon_for_delta(delta))


def _grid(rough: float) -> float:
    """What losses are rounded up to: the finer, the tighter and the slower.

    This one costs less than a hundredth of ε.
    """
    return 1e-4 * 2.0 ** math.floor(math.log2(min(10.0, max(1.0, rough))))


@lru_cache(maxsize=8)
def _losses(q: float, noise: float, grid: float) -> Any:
    """One round's distribution of the privacy loss; adding and removing a client are its sides."""
    make = require().pld.privacy_loss_distribution.from_gaussian_mechanism
    with _quiet():
        return make(noise, value_discretization_interval=grid, sampling_prob=q)


@contextmanager
def _quiet() -> Iterator[None]:
    """The library warns of Rényi orders that it leaves out; the bound holds without them."""
    log = logging.getLogger("absl")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)
