"""``glocal doctor``: what this machine has, what is missing, and how to get it."""

from __future__ import annotations

from pathlib import Path

import typer

from glocal.cli.options import option
from glocal.cli.output import JSON, deliver


def doctor(
    compiles: bool = option(
        False, "Also compile and train a step, which takes some seconds.", "--compile"
    ),
    json: Path | None = JSON,
) -> None:
    """Say what this machine has for glocal, what is missing, and how to get it.

    Python, packages, processors, memory, GPU, compiler, folders and extras. No network is tried.
    The exit code is 0 if glocal works here, and 2 if not.

    Examples:
      glocal doctor

      glocal doctor --compile --json
    """
    from glocal.cli import doctor as checkup

    result = checkup.checks(compiles=compiles)
    deliver(result, json, lambda: typer.echo("\n".join(checkup.shown(result))))
    if not result["works"]:
        raise typer.Exit(2)
