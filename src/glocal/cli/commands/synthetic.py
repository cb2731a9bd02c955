"""``glocal synthetic``: what the synthetic data that a finished run made is good for."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from glocal import report, studies
from glocal.cli.options import folder_of, option
from glocal.cli.output import JSON, deliver
from glocal.core.progress import reporter

USES = ("warm-start", "public", "fill-up")


def synthetic(
    folder: Path = folder_of("The folder of a finished run of fedevg, fedcgan or fedcvae."),
    uses: str = option("+".join(USES), f"What to try: some of {', '.join(USES)}, joined by +."),
    rounds: int = option(10, "Rounds of fedavg from either start."),
    fill: str = option(
        "own", "Which examples poor clients get: of the classes they have (own), or all."
    ),
    seed: int | None = option(
        None, "Of these trainings; that of the run by default. The data is the run's."
    ),
    device: str | None = option(None, "cpu or cuda; that of the run by default."),
    json: Path | None = JSON,
) -> None:
    """What are the examples that a run made good for? A start, a public set, a filling.

    Examples:
      glocal synthetic runs/2026-01-31-120000-fedevg

      glocal synthetic runs/2026-01-31-120000-fedevg --uses fill-up --fill all
    """
    with reporter(None) as progress:
        result = studies.synthetic_run.try_uses(
            folder, uses, rounds=rounds, fill=fill, seed=seed, device=device, report=progress
        )
    deliver(result, json, partial(report.synthetic.show, result))
