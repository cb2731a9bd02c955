"""The data and the own code that a sweep or a search began with, and whether they are the same.

What is done of a sweep is read from its folder when it goes on. It may be read only if the data,
and the user's own files that it was trained with, are what they were: ``data.json`` has the
fingerprint of the data of each comparison, and a digest of each such file and registered method.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glocal.core import files
from glocal.core.errors import GlocalError
from glocal.core.own_code import is_own
from glocal.data.federation import Federation
from glocal.experiment.config import Config, of_group
from glocal.experiment.fingerprint import digest
from glocal.experiment.unequal import models_of
from glocal.methods.registry import REGISTERED
from glocal.methods.specs import calls

FILE = "data.json"
"""In the folder of a sweep or a search."""

DATA = "data"


@dataclass
class Loader:
    """Loads the data of one comparison after another: once while it stays the same.

    What became of a table's columns is said once, though another seed splits its rows otherwise.
    """

    root: Path | None = None
    """The folder of a sweep, which may have begun before."""
    _last: tuple[Any, Federation] | None = None
    _told: set[tuple[Any, ...]] = field(default_factory=set)

    def load(self, config: Config) -> Federation:
        """The federation of a configuration."""
        settings = tuple(getattr(config, each.name) for each in of_group("Data"))
        if self._last is None or self._last[0] != (settings, config.seed):
            try:
                fed = config.federation(announced=settings not in self._told)
            except GlocalError as error:
                if self.root is None or not (self.root / FILE).is_file():
                    raise
                raise from_elsewhere(error) from error
            self._last = (settings, config.seed), fed
            self._told.add(settings)
        return self._last[1]


def from_elsewhere(error: GlocalError) -> GlocalError:
    """The error for data that cannot be loaded any more, with what may be the reason."""
    return GlocalError(
        f"{str(error).rstrip('.')} (paths are as seen from where the run was started)."
    )


def changed(path: Path, then: object, now: str) -> GlocalError:
    """The error for data that is not what a run began with."""
    return GlocalError(
        f"the data of {path} has changed since (its fingerprint was {str(then)[:16]} and is "
        f"{now[:16]} now): give it the old data back, or train anew."
    )


def check(root: Path, part: str, fed: Federation, methods: Sequence[str], config: Config) -> None:
    """Keep what a part of a sweep begins with; refuse it if it began with something else."""
    now = {DATA: fed.fingerprint} | own_code(methods, config)
    try:
        known = json.loads((root / FILE).read_bytes()) if (root / FILE).is_file() else {}
        then = dict(known.get(part, now))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise GlocalError(
            f"{root / FILE} is damaged ({type(error).__name__}: {error}): train anew into another "
            "folder."
        ) from error
    if then.get(DATA) != now[DATA]:
        raise changed(root / part, then.get(DATA), now[DATA])
    for name in now:
        if then.get(name) != now[name]:
            raise GlocalError(
                f"{name} has changed since {root / part} began: give it back as it was, or train "
                "anew into another folder."
            )
    if part not in known:
        files.write(root / FILE, files.dump(known | {part: now}))


def own_code(methods: Sequence[str], config: Config) -> dict[str, str]:
    """The digests of the user's own files and registered methods, by name."""
    named = {call.name for spec in methods for call in calls(spec)}
    alone = str(config.baseline).partition("(")[0]
    texts: Iterable[Any] = (*named, *models_of(config.model).values(), config.metric, alone)
    files_named = sorted({str(text).rpartition(":")[0] for text in texts if is_own(text)})
    registered = sorted(named & REGISTERED.keys())
    return {file: _digest(file) for file in files_named} | {
        name: digest(REGISTERED[name].make) for name in registered
    }


def _digest(file: str) -> str:
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError as error:
        raise GlocalError(f"{file} cannot be read: {error.strerror}.") from error
