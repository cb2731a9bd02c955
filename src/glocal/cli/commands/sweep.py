"""``glocal sweep``: methods at every combination of some settings, and one table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from glocal import report, runs
from glocal.cli.options import OUT, option, typed, with_settings
from glocal.cli.output import JSON, deliver
from glocal.core.errors import GlocalError, shown
from glocal.experiment.config import Config

if TYPE_CHECKING:
    from glocal.runs.swept import Sweep


@with_settings(jobs=0, diverged="skip")
def sweep(
    config: Config,
    methods: list[str] = typer.Argument(
        ...,
        metavar="METHOD...|FILE.toml",
        help="Methods, as in: fedavg 'ditto(lam=0.5)'; or a file with methods, settings and a "
        "table \\[sweep] of lists (options given here win).",
    ),
    over: list[str] | None = option(
        None,
        "A setting of runs or of the methods and its values, as in lr=0.03,0.1,0.3 or "
        "'model=mlp,mlp(200)'; may be given several times: every combination is trained.",
        "--over",
        panel="Training",
    ),
    seeds: int = option(
        0, "So many seeds, from --seed on: the table has means over them.", panel="Training", min=0
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


def lists(given: list[str], option_name: str) -> dict[str, list[Any]]:
    """``lr=0.1,0.3`` as ``{"lr": [0.1, 0.3]}``."""
    found: dict[str, list[Any]] = {}
    for text in given:
        name, equals, values = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name or name in found:
            raise GlocalError(
                f"{option_name} {shown(text)} cannot be read: write a setting once, and its "
                f"values, as in {option_name} lr=0.03,0.1,0.3."
            )
        found[name] = [_value(value.strip()) for value in _apart(values)]
    return found


def _apart(text: str) -> list[str]:
    """At commas outside brackets."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def _value(text: str) -> Any:
    """A number, true, false, or the text as it is."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return {"true": True, "false": False}.get(text, text)
