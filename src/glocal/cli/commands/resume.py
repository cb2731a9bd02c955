"""``glocal resume``: go on where a run or a comparison stopped, to the same result."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from glocal.cli.output import Json, deliver_json


def resume(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder of a run or of a comparison.")
    ],
    diverged: Annotated[
        str | None,
        typer.Option(
            help="From now on, a client whose training is not finite is skip(ped), clip(ped) or "
            "fatal; as before by default."
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Processes to train in; as before by default.")
    ] = None,
    json: Json = None,
) -> None:
    """Go on where a run stopped: after Ctrl-C, a kill, a full disk or a failure of power.

    What comes out is the same, to the bit, as if it had never stopped.

    Examples:
      glocal resume runs/2026-01-31-120000-compare

      glocal resume runs/2026-01-31-120000-fedavg --diverged skip
    """
    from glocal.cli.commands.training import train
    from glocal.experiment.result_files import read_result
    from glocal.runs.job import resumed

    job = resumed(folder, jobs, diverged)
    if job is None:
        file = folder / "result.json"
        if not deliver_json(read_result(file), json):
            typer.echo(f"The run in {folder} is finished: its figures are in {file}.")
        return
    train(job, json)
