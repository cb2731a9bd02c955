"""What a plan costs in privacy, before anyone trains."""

from __future__ import annotations

import math
from typing import Any

from glocal.core.errors import GlocalError
from glocal.core.validation import positive_integers
from glocal.slots import accounting
from glocal.slots.accounting import Scheme


def privacy_plan(
    scheme: Scheme,
    *,
    rounds: int | None = None,
    noise: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
) -> dict[str, Any]:
    """The plan with the one thing that was left out, and its cost."""
    if rounds is not None:
        positive_integers(rounds=rounds)
    if [rounds, noise, epsilon].count(None) != 1:
        raise GlocalError(
            "give two of --rounds, --noise and --epsilon, as in --rounds 50 --noise 1: the third "
            "follows from them."
        )
    delta = accounting.usual_delta(scheme.clients) if delta is None else delta
    asked = "epsilon"
    if noise is None and rounds is not None and epsilon is not None:
        asked, noise = "noise", _up(accounting.noise_for(epsilon, scheme, rounds, delta))
    elif rounds is None and noise is not None and epsilon is not None:
        asked, rounds = "rounds", accounting.rounds_for(epsilon, scheme, noise, delta)
    assert noise is not None
    assert rounds is not None
    spent, accountant = accounting.bound(scheme, noise, rounds, delta)
    return {
        "epsilon": spent,
        "epsilon_rdp": accounting.epsilon(scheme, noise, rounds, delta, "rdp"),
        "accountant": accountant,
        "vacuous": accounting.vacuous(spent),
        "delta": delta,
        "noise": noise,
        "rounds": rounds,
        "clients": scheme.clients,
        "sampled": scheme.sampled,
        "sampling": scheme.sampling,
        "neighbours": scheme.neighbours,
        "asked": asked,
        "budget": epsilon,
    }


def _up(noise: float) -> float:
    """Rounded up to four digits."""
    unit = 10.0 ** (math.floor(math.log10(noise)) - 3)
    return float(f"{math.ceil(noise / unit) * unit:.4g}")
