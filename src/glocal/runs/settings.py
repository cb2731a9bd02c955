"""Settings files: TOML with the names of :class:`~glocal.experiment.config.Config` and a method.

What a run writes to ``settings.toml`` can be run again; its tables of facts (versions, what was
chosen by rule, the hyper-parameters in force) are for reading and are passed over.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from datetime import date, time
from pathlib import Path
from typing import Any

from glocal.core import validation
from glocal.core.errors import GlocalError, shown
from glocal.experiment.config import Config, plain_kinds
from glocal.experiment.config_reading import from_mapping

FACTS = ("chosen", "hyperparameters", "federation", "versions")


def read(path: Path) -> tuple[str, Config]:
    """The method and the settings in a TOML file."""
    values = toml(path)
    if "method" not in values:
        raise GlocalError(f'{path} names no method: add a line such as method = "fedavg".')
    check_types(path, values)
    settings = {k: v for k, v in values.items() if k not in ("method", *FACTS)}
    try:
        return values["method"], from_mapping(settings)
    except GlocalError as error:  # a name nobody knows, or settings that do not go together
        raise GlocalError(f"{path}: {error}") from error


def toml(path: Path) -> dict[str, Any]:
    """What is in a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise GlocalError(f"there is no file {shown(str(path))}: check its name.") from error
    except OSError as error:
        raise GlocalError(f"{shown(str(path))} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise GlocalError(f"{path} is not text in UTF-8: save it as that.") from error
    except (ValueError, RecursionError) as error:
        # Not TOML's own error: brackets by the thousand, digits by the thousand.
        own = isinstance(error, tomllib.TOMLDecodeError)
        why = str(error) if own else "a value in it is too long or nested too deep"
        raise GlocalError(
            f"{shown(str(path))} is not valid TOML: {why}; write lines like rounds = 50."
        ) from error


def check_types(path: Path, values: Mapping[str, Any]) -> None:
    """Refuse a value of another type than its setting's, with the line to write instead."""
    defaults = {each.name: each.default for each in dataclasses.fields(Config)}
    for name, value in values.items():
        if name in FACTS and not isinstance(value, dict):
            raise GlocalError(f"{path}: {name} is a table of what a run found: leave it out.")
        kind = {"method": str, **plain_kinds()}.get(name)
        if kind is None:
            continue
        given = tuple(value) if isinstance(value, list) else value
        if not validation.fits(given, kind) and not _too_large(given, kind):
            example = validation.written(defaults.get(name, "fedavg"), kind)
            raise GlocalError(
                f"{path}: {name} must be {validation.words(kind)}, not {_toml_like(value)}: "
                f"write {name} = {example}."
            )


def _too_large(value: Any, kind: Any) -> bool:
    """Whether this is an integer where one is asked for: what is wrong is said elsewhere."""
    return isinstance(value, int) and not isinstance(value, bool) and validation.fits(1, kind)


def _toml_like(value: Any) -> str:
    """A value as its writer knows it: true, not True."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, date | time):
        return str(value)
    return str(value).lower() if isinstance(value, bool) else shown(value)
