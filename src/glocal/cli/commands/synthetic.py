"""``glocal synthetic``: what the synthetic data that a finished run made is good for."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from glocal import report, studies
from glocal.cli.options import usable
from glocal.cli.output import Json, deliver, option
from glocal.core.progress import reporter

USES = ("warm-start", "public", "fill-up")
ROUNDS = 10
METHOD = "fedavg"
"""What is trained with and without the examples."""


def synthetic(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="The folder of a finished run of fedevg, fedcgan or fedcvae.",
            callback=usable,
        ),
    ],
    uses: Annotated[
        str, option(f"What to try: some of {', '.join(USES)}, joined by +.")
    ] = "+".join(USES),
    rounds: Annotated[int, option(f"Rounds of {METHOD} from either start.")] = ROUNDS,
    fill: Annotated[
        str, option("Which examples poor clients get: of the classes they have (own), or all.")
    ] = "own",
    seed: Annotated[
        int | None, option("Of these trainings; that of the run by default. The data is the run's.")
    ] = None,
    device: Annotated[str | None, option("cpu or cuda; that of the run by default.")] = None,
    json: Json = None,
) -> None:
    """What are the examples that a run made good for? A start, a public set, a filling.

    Examples:
      glocal synthetic runs/2026-01-31-120000-fedevg

      glocal synthetic runs/2026-01-31-120000-fedevg --uses fill-up --fill all
    """
    with reporter(None) as progress:
        result = studies.synthetic_run.try_uses(
            folder,
            uses,
            base=METHOD,
            rounds=rounds,
            fill=fill,
            seed=seed,
            device=device,
            report=progress,
        )
    deliver(result, json, partial(report.synthetic.show, result))
