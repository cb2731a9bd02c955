"""``glocal resume``: go on where a run or a comparison stopped, to the same result."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from glocal.cli.options import Json


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
    from glocal.cli.app import check_json
    from glocal.cli.commands.training import train
    from glocal.core.files import write
    from glocal.experiment.result_files import read_result
    from glocal.runs.job import resumed

    check_json(json)
    job = resumed(folder, jobs, diverged)
    if job is None:
        found = read_result(folder / "result.json")
        if str(json) == "-":
            sys.stdout.write(found.decode())
            return
        if json is not None:
            write(json, found)
        typer.echo(f"The run in {folder} is finished: its figures are in {folder / 'result.json'}.")
        return
    train(job, json)
