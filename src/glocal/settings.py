"""A run's settings, as the command line and TOML files give them: one line each, with its default.

A file has the same names as the options. What a run writes to ``settings.toml`` can be run again;
its tables of facts (versions, what was chosen by rule) are for reading and are passed over.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glocal.errors import GlocalError, unknown

if TYPE_CHECKING:
    from glocal.data.federation import Federation

FACTS = ("chosen", "federation", "versions")

LEAST = {"validate_every": 0, "jobs": 0, "checkpoint_every": 0, "keep_checkpoints": 1}


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
    checkpoint_every: int = 0
    keep_checkpoints: int = 2

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _check(field.name, getattr(self, field.name), str(field.type))
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


def read(path: Path) -> tuple[str, Settings]:
    """The method and the settings in a TOML file."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise GlocalError(f"there is no file {path}: check its name.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise GlocalError(f"{path} cannot be read: {error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise GlocalError(
            f"{path} is not valid TOML: {error}; write lines like rounds = 50."
        ) from error
    method = found.pop("method", None)
    if not isinstance(method, str):
        raise GlocalError(f'{path} names no method: add a line such as method = "fedavg".')
    return method, from_mapping({k: v for k, v in found.items() if k not in FACTS})


def from_mapping(values: Mapping[str, Any]) -> Settings:
    """Settings from names and values; an unknown name is an error."""
    names = {f.name for f in dataclasses.fields(Settings)}
    for name in values:
        if name not in names:
            raise unknown("setting", name, names | {"method"})
    found: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    return Settings(**found)


def _check(name: str, value: Any, kind: str) -> None:
    if value is None and "None" in kind:
        return
    wanted = kind.removesuffix(" | None")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    good = {
        "str": isinstance(value, str),
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": number,
        "bool": isinstance(value, bool),
        "tuple[float, float, float]": isinstance(value, tuple) and len(value) == 3,
        "tuple[str, ...]": isinstance(value, tuple) and all(isinstance(v, str) for v in value),
    }[wanted]
    if not good:
        words = {
            "str": "text",
            "int": "a whole number",
            "float": "a number",
            "bool": "true or false",
            "tuple[float, float, float]": "three numbers",
            "tuple[str, ...]": "a list of texts",
        }
        raise GlocalError(f"{name} must be {words[wanted]}, not {value!r}.")


def named_model(text: str) -> Any:
    """A model's name as it is, or ``file.py:Name`` as the function or class of that name."""
    path, colon, name = text.rpartition(":")
    if not colon or not path.endswith(".py"):
        return text
    file = Path(path)
    if not file.is_file():
        raise GlocalError(f"there is no file {path} for the model {text}: check its name.")
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
    from glocal import augment
    from glocal.spec import parse_call, split_plus

    steps = []
    for part in split_plus(text):
        name, args, kwargs = parse_call(part)
        if name not in augment.AUGMENTATIONS:
            raise unknown("augmentation", name, augment.AUGMENTATIONS)
        try:
            steps.append(augment.AUGMENTATIONS[name](*args, **kwargs))
        except TypeError as error:
            raise GlocalError(f"augmentation {part!r} cannot take that: {error}.") from error
    return augment.chain(*steps)
