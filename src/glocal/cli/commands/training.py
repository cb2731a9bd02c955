"""What ``run``, ``compare`` and ``resume`` share: train methods into folders, and show them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from glocal.runs.job import Job


def train(job: Job, json: Path | None) -> None:
    """Train all methods of a job, or what is left to train, and show them."""
    from glocal.cli.app import check_json
    from glocal.core import files
    from glocal.experiment.result_files import result
    from glocal.report.tables import show_clients, show_comparison
    from glocal.runs import job as jobs

    check_json(json)
    done, fed = jobs.train(job)
    everything = files.dump(result(done))
    if json is not None and str(json) == "-":
        sys.stdout.write(everything.decode())
        return
    if json is not None:
        files.write(json, everything)
    if job.one:
        show_clients(done[job.specs[0]])
    show_comparison(done, fed, job.against)
    typer.echo(f"Run folder: {job.root}")
