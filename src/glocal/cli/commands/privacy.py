"""``glocal privacy``: what a plan costs in privacy, before anyone trains."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from glocal import report, studies
from glocal.cli.output import Json, deliver, option
from glocal.core.errors import GlocalError


def privacy(
    clients: Annotated[int, option("N, all clients.", show_default=False)],
    sampled: Annotated[
        float | None,
        option("M, clients in a round (on average, with Poisson sampling). Default: all of them."),
    ] = None,
    rounds: Annotated[
        int | None, option("T. Left out, with --epsilon and --noise: how many there may be.")
    ] = None,
    noise: Annotated[
        float | None,
        option(
            "The noise on the sum of updates, over the clip. Left out, with --epsilon and "
            "--rounds: how much is needed."
        ),
    ] = None,
    epsilon: Annotated[float | None, option("A budget to be kept.")] = None,
    delta: Annotated[
        float | None, option("The chance of failure. Default: 1e-5, or 1/(10 N) if that is less.")
    ] = None,
    poisson: Annotated[
        bool,
        option("Poisson sampling, or exactly M of N, which costs more.", None, "--poisson/--fixed"),
    ] = True,
    local: Annotated[
        bool, option("Every client adds the noise itself (where=local).", None, "--local")
    ] = False,
    json: Json = None,
) -> None:
    """What does a plan cost in privacy? Asked before anyone trains.

    Give two of --rounds, --noise and --epsilon.

    Examples:
      glocal privacy --clients 80000 --sampled 100 --rounds 5000 --noise 1 --delta 1e-6

      glocal privacy --clients 1000 --sampled 50 --rounds 200 --epsilon 2

      glocal privacy --clients 1000 --sampled 50 --noise 1 --epsilon 2 --json
    """
    drawn = clients if sampled is None else sampled
    if not poisson and drawn != int(drawn):
        raise GlocalError(
            f"--fixed draws an integer number of clients, not {drawn:g}: use --poisson."
        )
    kind = "local" if local else "poisson" if poisson else "fixed"
    scheme, plan = studies.privacy_plan.privacy_plan(
        kind, clients, drawn, rounds=rounds, noise=noise, epsilon=epsilon, delta=delta
    )
    deliver(plan, json, partial(report.privacy.show, scheme, plan))
