"""Options of commands. Those of settings derive from the fields of the configuration."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_origin, get_type_hints

import click
import typer

from glocal.core.errors import GlocalError, shown
from glocal.experiment.config import Config, from_mapping, plain_kinds

LONGEST_NAME = 240


def with_settings(*chosen: str, **defaults: Any) -> Callable[[Callable[..., Any]], Any]:
    """Give a command the options of some settings, and their values as its argument ``config``.

    Args:
        chosen: Names of settings, or of groups of them (:data:`~glocal.experiment.config.GROUPS`);
            none: all. A name with ``-`` before it is left out.
        defaults: Values of settings where this command's differ.
    """
    fields = [each for each in dataclasses.fields(Config) if _is_chosen(each, chosen)]

    def decorate(command: Callable[..., Any]) -> Any:
        @functools.wraps(command)
        def with_config(**given: Any) -> Any:
            settings = dict(defaults)
            for each in fields:
                value = given.pop(_parameter(each))
                settings[each.name] = tuple(value or ()) if _is_list(each) else value
            return command(config=from_mapping(settings), **given)

        signature = inspect.signature(command)
        hints = get_type_hints(command, include_extras=True)
        parameters: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            if parameter.name == "config":
                parameters += [_option(each, defaults) for each in fields]
            else:
                kind = hints[parameter.name]
                parameters.append(
                    parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY)
                )
        with_config.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        with_config.__annotations__ = {p.name: p.annotation for p in parameters}
        return with_config

    return decorate


def typed() -> dict[str, Any]:
    """The settings that were typed on the command line, not left at their defaults."""
    context = click.get_current_context()
    source = click.core.ParameterSource.COMMANDLINE
    explicit = {}
    for each in dataclasses.fields(Config):
        name = _parameter(each)
        if name in context.params and context.get_parameter_source(name) == source:
            value = context.params[name]
            explicit[each.name] = tuple(value or ()) if _is_list(each) else value
    return explicit


def _is_chosen(each: dataclasses.Field[Any], chosen: tuple[str, ...]) -> bool:
    on_the_command_line = each.name in plain_kinds() and each.metadata["option"] != ""
    if not on_the_command_line or f"-{each.name}" in chosen:
        return False
    named = [name for name in chosen if not name.startswith("-")]
    return not named or each.name in named or each.metadata["group"] in named


def _parameter(each: dataclasses.Field[Any]) -> str:
    return each.metadata["option"] or each.name


def _is_list(each: dataclasses.Field[Any]) -> bool:
    return get_origin(plain_kinds()[each.name]) is tuple


def _option(each: dataclasses.Field[Any], defaults: dict[str, Any]) -> inspect.Parameter:
    """A setting as a parameter that typer makes an option of."""
    name, kind = _parameter(each), plain_kinds()[each.name]
    default = defaults.get(each.name, each.default)
    if _is_list(each):
        kind, default = list[str] | None, list(default) or None
    flag = f"--{name.replace('_', '-')}"
    group = each.metadata["group"]
    option = typer.Option(flag, help=each.metadata["help"], rich_help_panel=group)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option]
    )


def usable(path: Path | None) -> Path | None:
    """Refuse, before anything is trained, a path that no file or folder can have."""
    if path is None:
        return None
    problem = None
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        pass  # it may be made, and whoever makes it says why not
    except OSError as error:
        problem = error.strerror
    except ValueError:
        problem = "it holds a NUL character"
    # Files are written beside their place first, under a name a little longer.
    if problem is None and len(os.fsencode(path.name)) > LONGEST_NAME:
        problem = "File name too long"
    if problem is not None:
        raise GlocalError(
            f"the path {shown(str(path))} cannot be used ({problem}): choose another."
        )
    return path


Out = Annotated[
    Path | None,
    typer.Option(
        help="The run folder; a new one under runs/ by default.",
        rich_help_panel="Output",
        callback=usable,
    ),
]
Json = Annotated[
    Path | None,
    typer.Option(
        "--json",
        help="Also write all figures to this file ('-': print).",
        rich_help_panel="Output",
        callback=usable,
    ),
]


# The options one by one, for commands that do not take them from the configuration yet.
Data = Annotated[
    str,
    typer.Option(
        help="A data set ('glocal data' lists them), or your own .csv or .npz file.",
        rich_help_panel="Data",
    ),
]
Clients = Annotated[
    int, typer.Option(help="How many clients the data is dealt among.", rich_help_panel="Data")
]
Partition = Annotated[
    str | None,
    typer.Option(
        help="How it is dealt: iid, dirichlet(0.3), dirichlet-clients(0.3), classes(2), shards(2), "
        "quantity(0.5), by(column). Default: the data's own clients, or dirichlet(0.3).",
        rich_help_panel="Data",
    ),
]
Transform = Annotated[
    list[str] | None,
    typer.Option(
        "--transform",
        help="Change some clients' data, as in 'rotate(90, clients=5)' or 'pair-noise(0.4)'; may "
        "be given several times.",
        rich_help_panel="Data",
    ),
]
Label = Annotated[
    str, typer.Option(help="The label column of a .csv file.", rich_help_panel="Data")
]
Client = Annotated[
    str, typer.Option(help="The client column of a .csv file.", rich_help_panel="Data")
]
Model = Annotated[
    str,
    typer.Option(
        help="A model such as mlp, 'mlp(200,200)', lenet, cnn, resnet10; or your own, as "
        "net.py:Name ('glocal methods' lists all).",
        rich_help_panel="Training",
    ),
]
Init = Annotated[
    str | None,
    typer.Option(
        help="Start from the weights in this .safetensors file.", rich_help_panel="Training"
    ),
]
Augment = Annotated[
    str | None,
    typer.Option(help="Augment training images, as in 'crop(4)+flip'.", rich_help_panel="Training"),
]
Rounds = Annotated[int, typer.Option(help="Communication rounds.", rich_help_panel="Training")]
FractionOf = Annotated[
    float, typer.Option(help="Share of clients in a round.", rich_help_panel="Training")
]
Sampled = Annotated[
    int | None,
    typer.Option(help="Clients in a round, instead of --fraction.", rich_help_panel="Training"),
]
PoissonOption = Annotated[
    bool,
    typer.Option(
        "--poisson",
        help="Each client is in a round by its own coin of that probability.",
        rich_help_panel="Training",
    ),
]
Repeats = Annotated[
    int,
    typer.Option(
        help="Repeat on other splits and seeds; verdicts pool over them, so fewer stay undecided.",
        rich_help_panel="Judging",
    ),
]
Yardstick = Annotated[
    str,
    typer.Option(
        help="How clients train alone, as in 'local(max_epochs=200)'.", rich_help_panel="Judging"
    ),
]
ValidateEvery = Annotated[
    int,
    typer.Option(
        help="Record validation accuracy each so many rounds (0: after the last).",
        rich_help_panel="Judging",
    ),
]
NewTest = Annotated[
    bool,
    typer.Option(
        "--new-test",
        help="Also judge all clients' models together on data of unknown origin.",
        rich_help_panel="Judging",
    ),
]
Adapt = Annotated[
    str | None,
    typer.Option(
        help="Let each client adapt what it got: fine-tune, freeze-base, ewc, distill, with "
        "settings and joined by +, or best (all of them, and of those each client's best).",
        rich_help_panel="Judging",
    ),
]
Seed = Annotated[int, typer.Option(help="Of everything drawn: same seed, same result.")]
EngineOption = Annotated[
    str,
    typer.Option(
        "--engine",
        help="sequential, vectorised, compiled (vectorised, and compiled first), or auto (by "
        "model, device and length of the run).",
        rich_help_panel="Machine",
    ),
]
Device = Annotated[str, typer.Option(help="cpu or cuda.", rich_help_panel="Machine")]
PrecisionOption = Annotated[
    str,
    typer.Option(
        "--precision",
        help="single, or bf16: training's products and convolutions in bfloat16.",
        rich_help_panel="Machine",
    ),
]
Jobs = Annotated[
    int,
    typer.Option(
        help="Processes to train in (0: one a core, where models are small and there is much to "
        "train).",
        rich_help_panel="Machine",
    ),
]
Diverged = Annotated[
    str,
    typer.Option(
        help="A client whose training is not finite: fatal (the run ends), skip (it sits the round "
        "out), clip (what is finite of its update is used, shortened).",
        rich_help_panel="Training",
    ),
]
StatesOption = Annotated[
    str,
    typer.Option(
        help="Where clients' states are kept: on the device, in the host's memory (host), on disk, "
        "or by their size (auto). Changes nothing that comes out.",
        rich_help_panel="Machine",
    ),
]
CheckpointEvery = Annotated[
    int,
    typer.Option(
        help="Rounds from checkpoint to checkpoint (0: as often as it takes 5 % of the time).",
        rich_help_panel="Output",
    ),
]
KeepCheckpoints = Annotated[
    int, typer.Option(help="How many checkpoints are kept.", rich_help_panel="Output")
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        help="Also pass every round on to tensorboard or mlflow; may be given several times.",
        rich_help_panel="Output",
    ),
]


def chosen(arguments: dict[str, Any]) -> dict[str, Any]:
    """The settings among a command's arguments."""
    found = {k: v for k, v in arguments.items() if k in plain_kinds()}
    lists = {"transforms": "transform", "track": "track"}
    return {**found, **{name: tuple(arguments.get(k) or ()) for name, k in lists.items()}}
