"""``glocal privacy``: what a plan costs in privacy, before anyone trains."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from glocal import report, studies
from glocal.cli.options import option
from glocal.cli.output import JSON, deliver
from glocal.core.errors import GlocalError


def privacy(
    clients: int = option(..., "N, all clients.", show_default=False),
    sampled: float | None = option(
        None, "M, clients in a round (on average, with Poisson sampling). Default: all of them."
    ),
    rounds: int | None = option(
        None, "T. Left out, with --epsilon and --noise: how many there may be."
    ),
    noise: float | None = option(
        None,
        "The noise on the sum of updates, over the clip. Left out, with --epsilon and --rounds: "
        "how much is needed.",
    ),
    epsilon: float | None = option(None, "A budget to be kept."),
    delta: float | None = option(
        None, "The chance of failure. Default: 1e-5, or 1/(10 N) if that is less."
    ),
    poisson: bool = option(
        True, "Poisson sampling, or exactly M of N, which costs more.", "--poisson/--fixed"
    ),
    local: bool = option(False, "Every client adds the noise itself (where=local).", "--local"),
    json: Path | None = JSON,
) -> None:
    """What does a plan cost in privacy? Asked before anyone trains.

    Give two of --rounds, --noise and --epsilon.

    Examples:
      glocal privacy --clients 80000 --sampled 100 --rounds 5000 --noise 1 --delta 1e-6

      glocal privacy --clients 1000 --sampled 50 --rounds 200 --epsilon 2

      glocal privacy --clients 1000 --sampled 50 --noise 1 --epsilon 2 --json
    """
    from glocal.slots.accounting import Scheme

    drawn = clients if sampled is None else sampled
    if not poisson and drawn != int(drawn):
        raise GlocalError(
            f"--fixed draws an integer number of clients, not {drawn:g}: use --poisson."
        )
    scheme = Scheme("local" if local else "poisson" if poisson else "fixed", clients, drawn)
    plan = studies.privacy_plan.privacy_plan(
        scheme, rounds=rounds, noise=noise, epsilon=epsilon, delta=delta
    )
    deliver(plan, json, partial(report.privacy.show, scheme, plan))
