"""What ``run``, ``compare`` and ``resume`` share: train methods into folders, and show them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from glocal import report
from glocal.cli.output import deliver

if TYPE_CHECKING:
    from glocal.runs.job import Job


def train(job: Job, json: Path | None) -> None:
    """Train all methods of a job, or what is left to train, and show them."""
    from glocal.experiment.result_files import result
    from glocal.runs import job as jobs

    done, fed = jobs.train(job)

    def show() -> None:
        if job.one:
            report.comparison.show_clients(done[job.specs[0]])
        report.comparison.show_comparison(done, fed, job.against)
        typer.echo(f"Run folder: {job.root}")

    deliver(result(done), json, show)
