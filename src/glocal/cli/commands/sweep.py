"""``glocal sweep``: methods at every combination of some settings, and one table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from glocal import report, runs
from glocal.cli.options import OUT, training, typed, with_settings
from glocal.cli.output import JSON, deliver
from glocal.cli.value_lists import lists, methods_or_file, settings_and_values
from glocal.core.errors import GlocalError
from glocal.experiment.config import Config

if TYPE_CHECKING:
    from glocal.runs.swept import Sweep


@with_settings(jobs=0, diverged="skip")
def sweep(
    config: Config,
    methods: list[str] = methods_or_file("fedavg 'ditto(lam=0.5)'", "lists"),
    over: list[str] | None = settings_and_values(
        "runs or of the methods", "'model=mlp,mlp(200)'", ": every combination is trained"
    ),
    seeds: int = training(
        0, "So many seeds, from --seed on: the table has means over them.", min=0
    ),
    out: Path | None = OUT,
    json: Path | None = JSON,
) -> None:
    """Train methods at every combination of some settings, and show one table.

    Combinations that differ in nothing but the method and its own settings share their clients
    alone and train in one pool of processes. 'glocal resume' goes on with a sweep that stopped; its
    folder has results.csv, a line for each combination.

    Examples:
      glocal sweep fedavg fedprox ditto --over lr=0.03,0.1,0.3,1 --seeds 3 --rounds 20

      glocal sweep rates.toml --out runs/rates
    """
    defaults = {"jobs": config.jobs, **runs.sweep.DEFAULTS}
    asked = runs.experiment_file.named(methods, defaults, typed())
    asked = asked or runs.experiment_file.Experiment(methods, config)
    swept: Any = lists(over, "--over") if over else asked.sweep
    if seeds:
        swept = _with_seeds(swept, [asked.config.seed + i for i in range(seeds)])
    if swept is None:
        raise GlocalError("there is nothing to sweep over: add --over lr=0.03,0.1 or --seeds 3.")
    asked = replace(asked, sweep=swept)
    root = runs.sweep.new(asked, out)
    show_sweep(root, runs.sweep.train(root, asked), json)


def show_sweep(root: Path, swept: Sweep, json: Path | None) -> None:
    """Print the table of a sweep, and where its files are."""

    def show() -> None:
        report.sweep.show(swept)
        typer.echo(f"Run folder: {root} (a line for each cell in results.csv)")

    deliver(swept.result(), json, show)


def _with_seeds(swept: Any, seeds: list[int]) -> Any:
    """Every combination with every seed."""
    if isinstance(swept, list):
        return [{**point, "seed": seed} for point in swept for seed in seeds]
    if "seed" in (swept or {}):
        raise GlocalError("--seeds and a list of seeds say the same thing twice: give one of them.")
    return {**(swept or {}), "seed": seeds}
