"""A run's settings, as the command line and TOML files give them: one line each, with its default.

A file has the same names as the options. What a run writes to ``settings.toml`` can be run again;
its tables of facts (versions, what was chosen by rule) are for reading and are passed over.

The types of the fields are the one place that says what a setting may be: files are checked against
them by pydantic, all of a file at once, and settings made in Python by
:mod:`glocal.core.validation`.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from glocal.core import validation as fields
from glocal.core.errors import GlocalError, shown, unknown

if TYPE_CHECKING:
    from pydantic import BaseModel

    from glocal.data.federation import Federation

FACTS = ("chosen", "federation", "versions")

LEAST = {
    "rounds": 1,
    "repeats": 1,
    "validate_every": 0,
    "jobs": 0,
    "checkpoint_every": 0,
    "keep_checkpoints": 1,
}


@dataclass(frozen=True)
class Settings:
    """Everything a run depends on but the method."""

    data: str = "digits"
    model: str = "mlp"
    clients: int = 20
    partition: str | None = None
    split: tuple[float, float, float] = (0.7, 0.1, 0.2)
    transforms: tuple[str, ...] = ()
    label: str = "label"
    client: str = "client"
    rounds: int = 50
    fraction: float = 1.0
    sampled: int | None = None
    poisson: bool = False
    repeats: int = 1
    seed: int = 0
    engine: str = "auto"
    device: str = "cpu"
    init: str | None = None
    augment: str | None = None
    yardstick: str = "local"
    validate_every: int = 0
    new_test: bool = False
    attack: str | None = None
    adapt: str | None = None
    jobs: int = 0
    diverged: str = "fatal"
    states: str = "auto"
    precision: str = "single"
    checkpoint_every: int = 0
    keep_checkpoints: int = 2
    track: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, kind in _kinds().items():
            fields.check(name, getattr(self, name), kind)
        if self.sampled is not None and self.fraction != 1.0:
            raise GlocalError("fraction and sampled say the same thing twice: give one of them.")
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise GlocalError(f"{name} must be {least} or more, not {getattr(self, name)}.")

    def federation(self) -> Federation:
        """The clients' data."""
        from glocal.data import load

        return load(
            self.data,
            clients=self.clients,
            partition=self.partition,
            split=self.split,
            seed=self.seed,
            transforms=self.transforms,
            label=self.label,
            client=self.client,
        )

    def fit_arguments(self) -> dict[str, Any]:
        """The rest, as :func:`glocal.fit` takes it."""
        return {
            "model": named_model(self.model),
            "augment": augmentation(self.augment),
            **{
                name: getattr(self, name)
                for name in (
                    "rounds",
                    "fraction",
                    "sampled",
                    "poisson",
                    "repeats",
                    "seed",
                    "engine",
                    "device",
                    "init",
                    "yardstick",
                    "validate_every",
                    "new_test",
                    "attack",
                    "adapt",
                    "diverged",
                    "states",
                    "precision",
                )
            },
        }

    def as_toml(self) -> dict[str, Any]:
        """What TOML can hold: settings left at none are left out."""
        return {
            k: list(v) if isinstance(v, tuple) else v
            for k, v in dataclasses.asdict(self).items()
            if v is not None and v != ()
        }


@cache
def _kinds() -> dict[str, Any]:
    """The type of each setting."""
    kinds = get_type_hints(Settings)
    return {field.name: kinds[field.name] for field in dataclasses.fields(Settings)}


def _defaults() -> dict[str, Any]:
    return {field.name: field.default for field in dataclasses.fields(Settings)}


def read(path: Path) -> tuple[str, Settings]:
    """The method and the settings in a TOML file."""
    found = _toml(path)
    if "method" not in found:
        raise GlocalError(f'{path} names no method: add a line such as method = "fedavg".')
    _check_file(path, found)
    values = {k: v for k, v in found.items() if k not in ("method", *FACTS)}
    try:
        return found["method"], from_mapping(values)
    except GlocalError as error:  # a name nobody knows, or settings that do not go together
        raise GlocalError(f"{path}: {error}") from error


def from_mapping(values: Mapping[str, Any]) -> Settings:
    """Settings from names and values; an unknown name is an error."""
    for name in values:
        if name not in _kinds():
            raise unknown("setting", name, [*_kinds(), "method"])
    return Settings(**_with_tuples(values))


def _toml(path: Path) -> dict[str, Any]:
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


def _check_file(path: Path, found: Mapping[str, Any]) -> None:
    """The type of every setting in a file; an error names the file, the field and the fix."""
    from pydantic import ValidationError

    kinds, defaults = {"method": str, **_kinds()}, _defaults()
    try:
        _file().model_validate(_with_tuples(found))
        return
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
    if name in FACTS:
        raise GlocalError(f"{path}: {name} is a table of what a run found: leave it out.")
    example = fields.written(defaults.get(name, "fedavg"), kinds[name])
    raise GlocalError(
        f"{path}: {name} must be {fields.words(kinds[name])}, not {_toml_like(found[name])}: "
        f"write {name} = {example}."
    )


@cache
def _file() -> type[BaseModel]:
    """What a file may hold, for pydantic: the method, the fields of Settings, tables of facts."""
    from pydantic import ConfigDict, create_model

    strict = ConfigDict(strict=True, allow_inf_nan=False)
    shape: dict[str, Any] = {name: (kind, _defaults()[name]) for name, kind in _kinds().items()}
    shape |= {name: (dict[str, Any], {}) for name in FACTS}
    return create_model("File", __config__=strict, method=(str, ...), **shape)


def _with_tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """TOML has lists where settings have tuples."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}


def _toml_like(value: Any) -> str:
    """A value as its writer knows it: true, not True."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, date | time):
        return str(value)
    return str(value).lower() if isinstance(value, bool) else shown(value)


def named_model(text: str) -> Any:
    """A model's name as it is, or ``file.py:Name`` as the function or class of that name."""
    path, colon, name = text.rpartition(":")
    if not colon or not path.endswith(".py"):
        return text
    file = Path(path)
    if not os.path.isfile(file):  # Path.is_file raises where a name is too long
        raise GlocalError(f"there is no file {shown(path)} for the model {name}: check its name.")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise GlocalError(f"{path} cannot be loaded as Python: check its name.")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever the user's file raises
        raise GlocalError(f"{path} cannot be loaded: {type(error).__name__}: {error}.") from error
    make = getattr(module, name, None)
    if not callable(make):
        raise GlocalError(
            f"{path} has no class or function {name}: check the name after the colon."
        )
    return make


def augmentation(text: str | None) -> Any:
    """``crop(4)+flip`` as a keyed augmentation."""
    if text is None:
        return None
    from glocal.core.spec import parse_call, split_plus
    from glocal.nn import augment

    steps = []
    for part in split_plus(text):
        name, args, kwargs = parse_call(part)
        if name not in augment.AUGMENTATIONS:
            raise unknown("augmentation", name, augment.AUGMENTATIONS)
        fields.check_call(name, augment.AUGMENTATIONS[name], args, kwargs)
        steps.append(augment.AUGMENTATIONS[name](*args, **kwargs))
    return augment.chain(*steps)
