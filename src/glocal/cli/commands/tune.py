"""``glocal tune``: settings of methods chosen on validation data."""

from __future__ import annotations

from pathlib import Path

import typer

from glocal import report, runs
from glocal.cli.options import OUT, training, typed, with_settings
from glocal.cli.output import JSON, deliver
from glocal.cli.value_lists import lists, methods_or_file, settings_and_values
from glocal.core.errors import GlocalError
from glocal.experiment.config import Config


@with_settings(
    "Data",
    "Training",
    "Machine",
    "repeats",
    "metric",
    "-tune",
    "-patience",
    "-jobs",
    diverged="skip",
)
def tune(
    config: Config,
    methods: list[str] = methods_or_file("fedavg fedprox", "lists to choose from"),
    space: list[str] | None = settings_and_values(
        "the methods", "fedprox.mu=0.01,0.1 (of that method alone)"
    ),
    trials: int = training(
        0,
        "Combinations that each method tries, drawn by the seed (0: all; of several methods as "
        "many as the one with the fewest).",
        min=0,
    ),
    out: Path | None = OUT,
    json: Path | None = JSON,
) -> None:
    """Choose methods' settings on validation data, by successive halving.

    All candidates train for a few rounds, the best third for three times as many, and so on; those
    that differ in their learning rate alone train side by side. Every method has an equal budget.

    Examples:
      glocal tune fedavg --space lr=0.01,0.03,0.1,0.3,1 --space epochs=1,5

      glocal tune fedavg fedprox --space lr=0.03,0.1,0.3 --space fedprox.mu=0.01,0.1,1 --repeats 3
    """
    asked = runs.tune.Search(methods, lists(space or [], "--space"), config, trials or None)
    in_file = runs.experiment_file.named(methods, {"diverged": "skip"}, typed())
    if in_file is not None:
        if space:
            raise GlocalError("the file says what to choose from: leave --space out.")
        asked = runs.tune.of_file(in_file, trials or None)
    elif not space:
        raise GlocalError("there is nothing to choose from: add --space lr=0.03,0.1,0.3.")
    show_tuned(runs.tune.new(asked, out), asked, json)


def show_tuned(root: Path, asked: runs.tune.Search, json: Path | None) -> None:
    """Search into a folder, and print what was chosen."""
    done = runs.tune.train(root, asked)

    def show() -> None:
        report.tuning.show(done)
        typer.echo(f"Run folder: {root}")

    deliver(runs.tune.result(done), json, show)
