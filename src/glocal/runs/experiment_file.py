"""Experiments as files: which methods, at which settings, over what.

::

    methods = ["fedavg", "ditto(lam=0.5)"]
    rounds = 20
    data = "hospitals.csv"
    against = "fedavg"          # these two of a comparison alone
    choose = true

    [sweep]                     # of a sweep alone: every combination of these;
    lr = [0.03, 0.1, 0.3]       # or, written [[sweep]] several times, a list of combinations
    seed = [0, 1, 2]

Settings have the names of :class:`~glocal.experiment.config.Config`. The ``comparison.toml`` and
the ``settings.toml`` of run folders are such files too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glocal.core.errors import GlocalError, shown
from glocal.experiment.config import Config
from glocal.experiment.config_reading import from_mapping, with_presets
from glocal.runs.settings import FACTS, check_types, toml

OTHER = ("methods", "method", "against", "choose", "goal", "sweep", "trials", "settings", "folders")
"""What a file may say beside settings."""


@dataclass(frozen=True)
class Experiment:
    """What a file asks for."""

    methods: list[str]
    config: Config
    against: str | None = None
    choose: bool = False
    goal: float | None = None
    sweep: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None


def named(
    methods: Sequence[str], defaults: Mapping[str, Any], given: Mapping[str, Any]
) -> Experiment | None:
    """The experiment in a file, where a file is given in place of methods."""
    if len(methods) == 1 and methods[0].endswith(".toml"):
        return read(Path(methods[0]), defaults, given)
    if files := [method for method in methods if method.endswith(".toml")]:
        raise GlocalError(
            f"{files[0]} is a file, which names its methods itself: give one file and nothing "
            "beside it but options."
        )
    return None


def read(path: Path, defaults: Mapping[str, Any], given: Mapping[str, Any]) -> Experiment:
    """The experiment in a file; what is ``given`` wins over it, and it over the ``defaults``."""
    values = toml(path)
    settings = {k: v for k, v in values.items() if k not in OTHER} | _table(path, values)
    check_types(path, settings)
    settings = {k: v for k, v in settings.items() if k not in FACTS}
    methods = values.get("methods", [values["method"]] if "method" in values else None)
    if not isinstance(methods, list) or not methods or not all(isinstance(m, str) for m in methods):
        raise GlocalError(
            f'{path} names no methods: add a line such as methods = ["fedavg", "ditto"].'
        )
    against, goal, swept = values.get("against"), values.get("goal"), values.get("sweep")
    choose = values.get("choose", False)
    if not (against is None or isinstance(against, str)) or not isinstance(choose, bool):
        raise GlocalError(f"{path}: against is a method's name, and choose is true or false.")
    if not (goal is None or isinstance(goal, int | float)) or isinstance(goal, bool):
        raise GlocalError(f"{path}: goal must be a number, not {shown(goal)}: write goal = 0.9.")
    if not (swept is None or isinstance(swept, dict | list)):
        raise GlocalError(f"{path}: sweep is a table of lists, as in [sweep] and seed = [0, 1].")
    try:
        config = from_mapping({**defaults, **with_presets(methods, {**settings, **given})})
    except GlocalError as error:
        raise GlocalError(f"{path}: {error}") from error
    return Experiment(list(dict.fromkeys(methods)), config, against, choose, goal, swept)


def _table(path: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings in a table of their own, as a run folder has them."""
    table = values.get("settings", {})
    if not isinstance(table, dict):
        raise GlocalError(f"{path}: settings is a table: write [settings] and lines below it.")
    return table
