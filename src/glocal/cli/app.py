"""The command line. Nothing heavy is imported until a command needs it."""

from __future__ import annotations

import errno
import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
import typer

from glocal import report, studies
from glocal.cli import completion
from glocal.cli.commands import deploy
from glocal.cli.commands import studies as study
from glocal.cli.commands.adapt import adapt
from glocal.cli.commands.doctor import doctor
from glocal.cli.commands.fairness import fairness
from glocal.cli.commands.newcomer import newcomer
from glocal.cli.commands.plot import plot
from glocal.cli.commands.prediction import export, predict
from glocal.cli.commands.privacy import privacy
from glocal.cli.commands.report import report as report_command
from glocal.cli.commands.robustness import robustness
from glocal.cli.commands.runs import runs
from glocal.cli.commands.sweep import sweep
from glocal.cli.commands.synthetic import synthetic
from glocal.cli.commands.training import compare, resume, run
from glocal.cli.commands.tune import tune
from glocal.cli.commands.ui import ui
from glocal.cli.options import option, with_settings
from glocal.cli.output import JSON, BareJson, deliver
from glocal.cli.spelling import as_typed
from glocal.core.errors import GlocalError, Interrupted
from glocal.core.progress import Spelling, notes_once, reporter
from glocal.experiment.config import Config

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Federated learning in which every participant is better off: who is, by how much, and "
    "who is not?\n\nStart with 'glocal compare': it trains a few methods on embedded data and sets "
    "every client against the best it can train alone.",
)

app.add_typer(study.app, name="study")
app.add_typer(deploy.app, name="deploy")


def _version(asked: bool) -> None:
    if asked:
        from glocal.core.version import VERSION

        typer.echo(f"glocal {VERSION}")
        raise typer.Exit


@app.callback()
def glocal(
    version: bool = option(
        False, "Say which it is.", "--version", callback=_version, is_eager=True
    ),
) -> None:
    """What all commands have in common."""


for command in (compare, run, predict, export):
    app.command()(command)


@app.command()
def methods(
    spec: str | None = typer.Argument(
        None,
        metavar="[NAME]",
        help="A method or component, also with settings, as in 'fedprox(mu=0.1)+adam'.",
        autocompletion=completion.methods,
    ),
) -> None:
    """List methods, what can be joined to them, and models; with a NAME, all of its settings.

    Examples:
      glocal methods

      glocal methods ditto
    """
    if spec is None:
        report.catalogue.list_methods()
    else:
        report.catalogue.show_method(spec)


@app.command()
@with_settings("Data", "seed", "-data")
def data(
    config: Config,
    name: str | None = typer.Argument(
        None,
        help="A data set or file to load and show.",
        metavar="[NAME]",
        autocompletion=completion.data_sets,
    ),
) -> None:
    """List data sets and partitions; with a NAME, load it and draw how it is partitioned.

    Examples:
      glocal data

      glocal data digits --partition 'classes(2)'
    """
    if name is None:
        report.catalogue.list_data()
    else:
        report.catalogue.draw_federation(replace(config, data=name).federation())


@app.command()
def bench(
    repeats: int = option(7, "Interleaved repeats of each contestant."),
    json: Path | None = JSON,
) -> None:
    """Time a round of local training: plain PyTorch loop, sequential, vectorised, auto.

    All in one run; medians of interleaved repeats, in milliseconds.
    """
    if repeats < 1:
        raise GlocalError(f"repeats must be 1 or more, not {repeats}.")
    with reporter(None) as progress:
        result = studies.bench.run_bench(repeats=repeats, progress=progress)
    deliver(result, json, partial(report.catalogue.show_bench, result))


for command in (
    sweep,
    tune,
    resume,
    plot,
    newcomer,
    fairness,
    adapt,
    robustness,
    runs,
    ui,
    synthetic,
):
    app.command()(command)
app.command(name="report")(report_command)
for command in (privacy, doctor):
    app.command(cls=BareJson)(command)


def main() -> None:
    """Run the command line: 0 done, 2 bad input with one line that says what to do, 1 otherwise."""
    # Read when torch is loaded, later. Threads that spin while they wait make a round of small
    # models many times slower on a machine that is busy with something else.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    Spelling.of = as_typed
    try:
        with notes_once():
            code = _run()
    finally:
        Spelling.of = str
    sys.exit(code)


def _run() -> int:
    """Run a command; its exit code."""
    try:
        code = app(standalone_mode=False, prog_name="glocal")
        if code == 130:  # Ctrl-C, as typer passes it on
            _say("stopped.", code)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        typer.echo(error.format_message())
        code = 2
    except click.exceptions.Exit as error:
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = _say("stopped.", 130)
    except click.ClickException as error:
        code = _say(f"{error.format_message()} (try 'glocal --help')", 2)
    except GlocalError as error:
        code = _say(as_typed(str(error)), 2)
    except Interrupted as error:
        code = _say(str(error), error.code)
    except OSError as error:
        if not isinstance(error, BrokenPipeError) and error.errno != errno.ENOSPC:
            code = _defect(error)
        else:
            # Keep the interpreter from flushing into what takes nothing more.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            # Whoever closed a pipe has seen enough.
            broken = isinstance(error, BrokenPipeError)
            code = 0 if broken else _say(f"no room to write to ({error.strerror}): make some.", 2)
    except Exception as error:
        code = _defect(error)
    return code or 0


def _defect(error: Exception) -> int:
    """A defect of ours: no traceback, unless asked for."""
    if os.environ.get("GLOCAL_DEBUG"):
        raise error
    return _say(
        f"something went wrong that should not: {type(error).__name__}: {error}; "
        "set GLOCAL_DEBUG=1 and run again to see where, and please report it.",
        1,
    )


def _say(message: str, code: int) -> int:
    typer.echo(f"glocal: {' '.join(message.split())}", err=True)
    return code
