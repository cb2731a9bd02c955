"""Run folders: everything a run was and found, in files that others can read.

::

    settings.toml        what was asked for, what was chosen by rule, every hyper-parameter,
                         versions; can be run again
    columns.json         of a table: what became of each column
    preprocessing.json   of a table: how rows become features, fitted (in the first repeat)
    metrics.jsonl        a line a round, written as the run goes on
    checkpoints/         while it goes on: where it stands, to go on from
    final.safetensors    what the server ends with
    clients.safetensors  what the clients keep: ``ids`` says which rows are whose
    models.*             of which of these each client's model consists, and what is neither
    SHA256SUMS           the checksums of these files and of preprocessing.json
    synthetic.*          labelled examples, of methods that make some, and a picture of them
    result.json          the federation's figures and a row for each client: it is finished

Each file but ``metrics.jsonl`` is written whole or not at all, and ``result.json`` last. Who writes
to the folder holds its lock (:mod:`glocal.runs.locks`).
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import time
import tomllib
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO

from glocal.core import locks
from glocal.core.errors import GlocalError
from glocal.core.files import dump, make_folder, no_room, plain, toml, write
from glocal.experiment.resolved import hyperparameters, left_open
from glocal.experiment.result_files import SCHEMA, save
from glocal.runs.tracking import open_trackers

if TYPE_CHECKING:
    from glocal.data.federation import Federation
    from glocal.experiment.config import Config
    from glocal.experiment.run import Run

COMPARISON = "comparison.toml"
"""In the folder of a comparison: its methods, and the folder of each."""

CHECKPOINTS = "checkpoints"

COLUMNS, PREPROCESSING = "columns.json", "preprocessing.json"

MAY_CHANGE = ("diverged", "jobs")
"""Settings that may be others when a run is resumed."""

_PART = re.compile(r"\..*\.part")


def fresh_name(kind: str) -> Path:
    """A folder of its own under ``runs/``, by date and time, and a number if that is taken."""
    path = Path(time.strftime(f"runs/%Y-%m-%d-%H%M%S-{kind}"))
    free, n = path, 1
    while free.exists():
        n += 1
        free = path.with_name(f"{path.name}-{n}")
    return free


def prepare(folder: Path) -> Path:
    """Make the folder, before anything is trained; refuse what is there already."""
    if folder.is_dir() and locks.held(folder):
        raise GlocalError(
            f"another process is writing to {folder}: wait until it ends, or choose another folder."
        )
    if folder.is_dir():
        refuse_taken(folder)
    return make_folder(folder)


def begin(folder: Path, file: str, about: Mapping[str, Any], what: str) -> Path:
    """Make the folder of a sweep, say, with a file of what it consists of; keep that of the same.

    Refuse the folder of another.
    """
    content = toml(about).encode()
    if not (folder / file).is_file():
        prepare(folder)
        write(folder / file, content)
    elif (folder / file).read_bytes() != content:
        raise GlocalError(f"there is another {what} in {folder}: choose another folder.")
    return folder


def refuse_taken(folder: Path) -> None:
    """Refuse a folder in which there is something."""
    # Of a run that was killed before it had written a file, there is only what it was writing.
    if all(p.name == locks.NAME or _PART.fullmatch(p.name) for p in folder.iterdir()):
        return
    hint = f", or go on with what is there by 'glocal resume {folder}'"
    raise GlocalError(
        f"the output folder {folder} is not empty: choose another, so that nothing is "
        f"lost{hint if unfinished(folder) else ''}."
    )


def unfinished(folder: Path) -> bool:
    """Whether a run or a comparison began here and has not come to its end."""
    began = any((folder / name).is_file() for name in ("settings.toml", COMPARISON))
    return began and not (folder / "result.json").is_file()


class Folder:
    """A run folder while its run goes on; nobody else can write to it."""

    def __init__(
        self,
        path: Path,
        method: str,
        config: Config,
        fed: Federation,
        title: str,
        *,
        again: bool = False,
    ) -> None:
        about = {"method": method, **config.as_toml()}
        self._tracker = open_trackers(config.track, path, title, about)  # they may be refused
        self.path = path if again and path.is_dir() else prepare(path)
        self._open = ExitStack()
        self._open.enter_context(locks.hold(path))
        if not again:
            refuse_taken(path)
        self._new = not (path / "settings.toml").is_file()
        if self._new:
            self._known: dict[str, Any] = {
                **about,
                "chosen": left_open(config, fed),
                "hyperparameters": hyperparameters(method, config),
                "federation": {**plain(fed.describe), "fingerprint": fed.fingerprint},
                "versions": versions(),
            }
            self._write_settings()
            write(self._metrics, b"")
        else:
            # What may change when a run is resumed changes nothing of what was done so far.
            self._known = tomllib.loads((path / "settings.toml").read_text(encoding="utf-8"))
            now = {name: getattr(config, name) for name in MAY_CHANGE}
            if any(self._known.get(name) != value for name, value in now.items()):
                self._known |= now
                self._write_settings()
        if fed.preprocessing is not None:
            self._write_once(COLUMNS, [column.to_json() for column in fed.columns])
            self._write_once(PREPROCESSING, fed.preprocessing.to_json())
        self._lines: TextIO | None = None

    @property
    def _metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._tracker.__exit__(*error)
        with suppress(OSError):  # a full disk was noticed where something was written
            self._open.close()

    @property
    def began(self) -> bool:
        """Whether there is anything in it that was trained."""
        checkpoints = (self.path / CHECKPOINTS).rglob("*.safetensors")
        return (self._metrics.is_file() and self._metrics.stat().st_size > 0) or any(checkpoints)

    def discard(self) -> None:
        """What was asked for could not be run: leave nothing behind that looks like a run."""
        if self._new:
            for name in (COLUMNS, PREPROCESSING, "metrics.jsonl", "settings.toml", locks.NAME):
                (self.path / name).unlink(missing_ok=True)
            clear(self.path)
            if not any(self.path.iterdir()):
                self.path.rmdir()

    def line(self, line: Mapping[str, Any]) -> None:
        """A round's line, on disk at once, and to all trackers."""
        try:
            if self._lines is None:
                # A run that is resumed writes all of its lines again, from its checkpoint.
                self._lines = self._open.enter_context(self._metrics.open("w", encoding="utf-8"))
            self._lines.write(json.dumps(plain(line)) + "\n")
            self._lines.flush()
        except OSError as error:
            raise no_room(self._metrics, error) from error
        self._tracker.line(line)

    def finish(self, run: Run) -> None:
        """The results. Repeats may have trained side by side: now their lines come in order."""
        self._known.setdefault("chosen", {})["engine"] = run.settings["engine"]
        # What was chosen on validation data, a rate and a round for each repeat.
        self._known.setdefault("hyperparameters", {})["tuned"] = run.summary.get("chosen")
        self._write_settings()
        save(run, self.path)
        self._tracker.finish(run.summary, run.clients)

    def _write_once(self, name: str, content: Any) -> None:
        """A file that stays as it is when the run is resumed."""
        if not (self.path / name).is_file():
            write(self.path / name, dump(plain(content)))

    def _write_settings(self) -> None:
        write(self.path / "settings.toml", toml(self._known).encode())


def clear(folder: Path) -> None:
    """Remove the checkpoints of a run or comparison that is finished, and its locks."""
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    (folder / locks.NAME).unlink(missing_ok=True)


def versions() -> dict[str, str]:
    """What ran."""
    import numpy
    import torch

    from glocal.core.version import VERSION

    return {
        "glocal": VERSION,
        "numpy": numpy.__version__,
        "platform": platform.platform(),
        "python": platform.python_version(),
        "schema": str(SCHEMA),
        "torch": torch.__version__,
    }
