"""``glocal runs``: what has been run, what runs now, and how runs differ."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import typer

from glocal import report
from glocal import runs as run_folders
from glocal.cli import completion
from glocal.cli.options import option
from glocal.cli.output import JSON, deliver
from glocal.core.errors import GlocalError

PLACE = Path("runs")

which, order = partial(option, panel="Which"), partial(option, panel="Order")


def runs(
    places: list[Path] | None = typer.Argument(
        None,
        metavar="[DIR]...",
        help="Run folders, or folders with runs below. Default: runs/.",
        autocompletion=completion.run_folders,
    ),
    compare: bool = option(
        False,
        "Set the runs side by side: the settings in which they differ, and their figures.",
        "--compare",
    ),
    method: str | None = which(
        None, "Only methods with this text in them, or like this pattern: 'fedavg*'."
    ),
    data: str | None = which(None, "Only on this data."),
    state: str | None = which(None, "Only those: finished, running, stopped or damaged."),
    where: list[str] | None = which(
        None,
        "Only with this setting or figure, as in 'rounds=50', 'partition=dirichlet*' or "
        "'mean>0.9'; may be given several times, and all must hold.",
    ),
    sort: str | None = order(
        None,
        "By when (the default, newest first), folder, state, or any setting or figure: mean, "
        "worst10, better_off, epsilon, rounds, … (accuracies: best first).",
    ),
    reverse: bool = order(False, "The other way round.", "--reverse"),
    limit: int | None = order(None, "Only the first so many."),
    json: Path | None = JSON,
) -> None:
    """List runs and what came of them, newest first; or compare some.

    Reads run folders only: a run that goes on is not disturbed.

    Examples:
      glocal runs

      glocal runs --method ditto --where 'rounds>=50' --sort mean --limit 5

      glocal runs --compare runs/2026-01-31-120000-fedavg runs/2026-01-31-130000-ditto
    """
    if limit is not None and limit < 1:
        raise GlocalError(f"--limit must be 1 or more, not {limit}.")
    places = places or [default_place()]
    query = run_folders.query
    found, without_run = run_folders.listing.find(places)
    wanted = query.select(found, method=method, data=data, state=state, where=where or ())
    if sort is not None or not compare:
        wanted = query.ordered(wanted, sort or "when", reverse=reverse)
    shown = wanted[:limit]
    result = query.compared(shown) if compare else query.listed(shown)

    def show() -> None:
        lines = (
            report.run_listing.compared(shown, result)
            if compare
            else report.run_listing.listed(shown, len(wanted), len(found), without_run, places)
        )
        print("\n".join(lines))

    deliver(result, json, show)


def default_place() -> Path:
    """The folder ``runs`` here, where runs are by default; refuses to go on where it is missing."""
    if not PLACE.is_dir():
        raise GlocalError(
            "there is no folder runs/ here: give the folder to look in, or make a first run with "
            "'glocal compare'."
        )
    return PLACE
