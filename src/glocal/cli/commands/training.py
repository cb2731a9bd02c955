"""``glocal compare``, ``run`` and ``resume``: train methods into folders, and show them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import typer

from glocal import report, runs, studies
from glocal.cli import completion
from glocal.cli.commands.sweep import show_sweep
from glocal.cli.commands.tune import show_tuned
from glocal.cli.options import (
    OUT,
    evaluation,
    folder_of,
    option,
    path_option,
    training,
    typed,
    with_settings,
)
from glocal.cli.output import CSV, JSON, PICTURE, deliver, deliver_json
from glocal.core.errors import GlocalError
from glocal.experiment.config import COMPARE_DEFAULTS, DEFAULT_COMPARISON, Config
from glocal.experiment.config_reading import with_presets


@with_settings(jobs=0, **COMPARE_DEFAULTS)
def compare(
    config: Config,
    methods: list[str] | None = typer.Argument(
        None,
        metavar="[METHOD]...|FILE.toml",
        autocompletion=completion.methods,
        help="What to compare, as in: local fedavg 'fedprox(mu=0.1)' 'fedavg+adam(lr=0.01)' "
        f"own.py:mine; or a file with methods and settings of the same names as these options "
        f"(options given here win). Default: {' '.join(DEFAULT_COMPARISON)}.",
    ),
    against: str | None = evaluation(
        None,
        "One of the methods: how far are the others above it, with an interval?",
    ),
    choose: bool = evaluation(
        False,
        "Add a row in which each client chooses among all of these and being alone, on its own "
        "validation data (always there with --adapt).",
        "--choose",
    ),
    budget: str = training(
        "rounds",
        "What methods have in common: rounds, or equal (gradients: the others train for the number "
        "of rounds whose gradients come nearest to those of the first federated method).",
    ),
    goal: float | None = evaluation(
        None,
        "Also show the rounds and parameters until the mean validation accuracy is this, as in 0.9 "
        "(looked at after every round, or as --validate-every says).",
    ),
    placebo: Path | None = path_option(
        None,
        "Show beside the verdicts what 'glocal study placebo --json FILE' found on these clients.",
        panel="Evaluation",
    ),
    out: Path | None = OUT,
    json: Path | None = JSON,
    csv: Path | None = CSV,
    picture: Path | None = PICTURE,
) -> None:
    """Train several methods on one federation: who is better off than alone?

    Every client is set against the best it can train by itself, in three repeats, and against the
    same model alone. Both sides choose on validation data and are then trained on it, too.

    Examples:
      glocal compare

      glocal compare fedavg 'fedprox(mu=0.1)' --partition 'classes(2)' --repeats 5

      glocal compare fedavg ditto --data hospitals.csv --client hospital --label outcome --csv t.csv

      glocal compare hospitals.toml --seed 1
    """
    specs = list(dict.fromkeys(methods or DEFAULT_COMPARISON))
    asked = runs.experiment_file.named(specs, {"jobs": 0, **COMPARE_DEFAULTS}, typed())
    if asked is not None:
        if asked.sweep is not None:
            raise GlocalError(f"{specs[0]} describes a sweep: train it with 'glocal sweep'.")
        specs, config = asked.methods, asked.config
        against, goal = against or asked.against, goal if goal is not None else asked.goal
        choose = choose or asked.choose
    else:
        config = replace(config, **with_presets(specs, typed()))
    if against is not None and against not in specs:
        raise GlocalError(f"--against {against} is not among the methods compared: add it to them.")
    from glocal.experiment import without_effect
    from glocal.experiment.budget import check_budget, equal
    from glocal.experiment.goal import recording

    check_budget(budget)
    without_effect.check(specs, typed())
    config = recording(config, goal)
    if budget == "equal":
        matched = equal({spec: spec for spec in specs}, config, config.federation())
        specs = [spec for spec, _ in matched.values()]
        against = matched[against][0] if against is not None else None
    beside = None
    if placebo is not None:
        beside = studies.placebo.read(placebo)
        studies.placebo.check_fits(beside, config.federation(), config)
    job = runs.job.new(specs, config, out, "compare", against, choose, goal)
    _train(job, json, csv, picture, beside)


@with_settings(jobs=0)
def run(
    config: Config,
    method: str = typer.Argument(
        ...,
        metavar="METHOD|FILE.toml",
        autocompletion=completion.methods,
        help="A method, as in 'fedprox(mu=0.1)' or own.py:mine; or a file with a method and "
        "settings of the same names as these options (options given here win).",
    ),
    out: Path | None = OUT,
    json: Path | None = JSON,
    csv: Path | None = CSV,
    picture: Path | None = PICTURE,
) -> None:
    """Train one method and show every client's row.

    Examples:
      glocal run fedavg --rounds 20

      glocal run runs/2026-01-31-120000-fedavg/settings.toml --seed 1
    """
    if method.endswith(".toml"):
        method, config = runs.settings.read(Path(method))
        config = replace(config, **typed())
    else:
        config = replace(config, **with_presets([method], typed()))
    from glocal.experiment import without_effect

    without_effect.check([method], typed())
    _train(runs.job.new([method], config, out, "run"), json, csv, picture)


def resume(
    folder: Path = folder_of("The folder of a run, a comparison or a sweep."),
    diverged: str | None = option(
        None,
        "From now on, a client whose training is not finite is skip(ped), clip(ped) or fatal; as "
        "before by default.",
    ),
    jobs: int | None = option(None, "Processes to train in; as before by default."),
    json: Path | None = JSON,
    csv: Path | None = CSV,
    picture: Path | None = PICTURE,
) -> None:
    """Go on where a run stopped: after Ctrl-C, a kill, a full disk or a failure of power.

    What comes out is the same, to the bit, as if it had never stopped.

    Examples:
      glocal resume runs/2026-01-31-120000-compare

      glocal resume runs/2026-01-31-120000-fedavg --diverged skip

      glocal resume runs/2026-01-31-120000-compare --csv verdicts.csv --picture verdicts.png
    """
    from glocal.experiment.result_files import read_result

    for name, what in ((runs.sweep.FILE, "sweep"), (runs.tune.FILE, "search")):
        if (folder / name).is_file() and not csv is picture is None:
            raise GlocalError(f"--csv and --picture are of clients, and {folder} is a {what}.")
    if (folder / runs.sweep.FILE).is_file():
        _go_on_with_sweep(folder, jobs, diverged, json)
        return
    if (folder / runs.tune.FILE).is_file():
        show_tuned(folder, runs.tune.left_off(folder), json)
        return
    job = runs.job.resumed(folder, jobs, diverged)
    if job is not None:
        _train(job, json, csv, picture)
        return
    file = folder / "result.json"
    over = f"The run in {folder} is finished: its figures are in {file}."
    _deliver(read_result(file), json, csv, picture, lambda: typer.echo(over))


def _go_on_with_sweep(
    folder: Path, jobs: int | None, diverged: str | None, json: Path | None
) -> None:
    """Cells that are done are read, and the others trained."""
    if jobs is not None or diverged is not None:
        raise GlocalError("a sweep goes on as it began: leave --jobs and --diverged out.")
    asked = runs.experiment_file.read(folder / runs.sweep.FILE, {}, {})
    show_sweep(folder, runs.sweep.train(folder, asked), json)


def _train(
    job: runs.job.Job,
    json: Path | None,
    csv: Path | None = None,
    picture: Path | None = None,
    placebo: dict[str, Any] | None = None,
) -> None:
    """Train all methods of a job, or what is left to train, and show them."""
    from glocal.experiment.result_files import result

    if Path("-") == json == csv:
        raise GlocalError("--json and --csv both print: give one of them a file.")
    if picture is not None and job.config.baseline == "none":
        raise GlocalError(
            "--picture shows what clients gain over being alone: leave out --picture, or "
            "--baseline none."
        )
    done, _ = runs.job.train(job)

    def show() -> None:
        if job.one:
            report.comparison.show_clients(next(iter(done.values())))
        report.comparison.show_comparison(done, job.against)
        if not job.one:
            report.participants.show_participants(done)
        if placebo is not None:
            report.studies.show_placebo_beside(placebo)
        typer.echo(f"Run folder: {job.root}")

    found = {**result(done), **({"placebo": placebo} if placebo else {})}
    _deliver(found, json, csv, picture, show)


def _deliver(
    found: dict[str, Any],
    json: Path | None,
    csv: Path | None,
    picture: Path | None,
    show: Callable[[], None],
) -> None:
    """Write the CSV, and all else as every command does; tables, unless something else prints."""
    from glocal.experiment.participants import as_csv

    printed = csv is not None and deliver_json(as_csv(found["methods"]), csv)
    draw = partial(report.benefits.draw, found)
    deliver(found, json, show, picture, draw, quiet=printed)
