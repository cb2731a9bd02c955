"""Options of commands. Those of settings derive from the fields of the configuration."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_origin, get_type_hints

import click
import typer

from glocal.cli import completion
from glocal.core.errors import GlocalError, shown
from glocal.experiment.config import COMPARE_DEFAULTS, Config, plain_kinds
from glocal.experiment.config_reading import from_mapping

LONGEST_NAME = 240


def option(default: Any, text: str, *names: str, panel: str | None = None, **more: Any) -> Any:
    """An option of one command: its default, its help, and where the help shows it."""
    return typer.Option(default, *names, help=text, rich_help_panel=panel, **more)


def run_places() -> Any:
    """The folders of runs that a command reads."""
    return typer.Argument(
        ...,
        metavar="DIR...",
        autocompletion=completion.run_folders,
        help="Folders of runs, comparisons or sweeps; they may still be running.",
    )


def out_file(text: str) -> Any:
    """The file that a command writes."""
    return path_option(None, text, panel="Output")


def with_settings(*chosen: str, **defaults: Any) -> Callable[[Callable[..., Any]], Any]:
    """Give a command the options of some settings, and their values as its argument ``config``.

    Args:
        chosen: Names of settings, or of groups of them (:data:`~glocal.experiment.config.GROUPS`);
            none: all. A name with ``-`` before it is left out.
        defaults: Values of settings where this command's differ.
    """
    fields = [each for each in dataclasses.fields(Config) if _is_chosen(each, chosen)]

    def config(**given: Any) -> Config:
        settings = dict(defaults)
        for each in fields:
            value = given[_parameter(each)]
            settings[each.name] = tuple(value or ()) if _is_list(each) else value
        return from_mapping(settings)

    return with_argument(config, [_option(each, defaults) for each in fields])


def with_argument(
    make: Callable[..., Any], options: list[inspect.Parameter] | None = None
) -> Callable[[Callable[..., Any]], Any]:
    """Give a command options in the place of the argument that ``make`` is named after.

    The argument is what ``make`` makes of their values. They are its own, unless given.
    """
    name, taken = make.__name__, _parameters(make) if options is None else options

    def decorate(command: Callable[..., Any]) -> Any:
        @functools.wraps(command)
        def with_options(**given: Any) -> Any:
            made = make(**{each.name: given.pop(each.name) for each in taken})
            return command(**{name: made}, **given)

        parameters: list[inspect.Parameter] = []
        for each in _parameters(command):
            parameters += taken if each.name == name else [each]
        with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        with_options.__annotations__ = {p.name: p.annotation for p in parameters}
        return with_options

    return decorate


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """All by name, with their types."""
    hints = get_type_hints(function)
    return [
        each.replace(annotation=hints[each.name], kind=inspect.Parameter.KEYWORD_ONLY)
        for each in inspect.signature(function).parameters.values()
    ]


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
    more: dict[str, Any] = {}
    if kind == int | str:
        kind, more = str, {"click_type": NUMBER_OR_NAME}
    flag = f"--{name.replace('_', '-')}"
    # What is on in one command can be turned off in all.
    if default is True or COMPARE_DEFAULTS.get(each.name) is True:
        flag += f"/--no-{name.replace('_', '-')}"
    group = each.metadata["group"]
    more["autocompletion"] = completion.of_setting(each.name)
    shown = option(default, each.metadata["help"], flag, panel=group, **more)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=shown, annotation=kind)


def usable(path: Path | None) -> Path | None:
    """Raise, before anything is trained, if no file or folder can have this path."""
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


class PathType(click.ParamType):
    """A path that is not empty: ``--out "$NOTHING"`` would be the current folder."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path."""
        if value == "":
            given = param.opts[0] if isinstance(param, click.Option) else "the path"
            remedy = "leave it out, or name" if param and not param.required else "name"
            raise GlocalError(f"{given} is empty: {remedy} a file or folder.")
        return Path(value)


PATH = PathType()


class NumberOrName(click.ParamType):
    """An integer, or a word that whoever takes it checks."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The integer, if it is one."""
        try:
            return int(value)
        except ValueError:
            return value


NUMBER_OR_NAME = NumberOrName()

training, evaluation, output = (
    functools.partial(option, panel=panel) for panel in ("Training", "Evaluation", "Output")
)
path_option = functools.partial(option, callback=usable, click_type=PATH)

OUT = path_option(None, "The run folder; a new one under runs/ by default.", panel="Output")


def method_names(default: str = "") -> Any:
    """The argument of a command that takes several methods, and which it takes by default."""
    shown = {"help": f"Default: {default}."} if default else {"show_default": False}
    return typer.Argument(None, metavar="[METHOD]...", autocompletion=completion.methods, **shown)


def folder_of(text: str, *, of_run: bool = True) -> Any:
    """The argument of a command that reads a run's folder, or another."""
    return typer.Argument(
        ...,
        metavar="DIR",
        help=text,
        callback=usable,
        click_type=PATH,
        autocompletion=completion.run_folders if of_run else None,
    )
