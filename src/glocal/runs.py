"""Run folders: everything a run was and found, in files that others can read.

::

    settings.toml        what was asked for, what was chosen by rule, versions; can be run again
    metrics.jsonl        a line a round, written as the run goes on
    result.json          the federation's figures and a row for each client
    final.safetensors    what the server ends with
    clients.safetensors  what the clients keep: ``ids`` says which rows are whose

Each file but ``metrics.jsonl`` is written whole or not at all.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from glocal.errors import GlocalError

if TYPE_CHECKING:
    from glocal.data.federation import Federation
    from glocal.fitting import Run
    from glocal.settings import Settings

SCHEMA = 1


def fresh_name(kind: str) -> Path:
    """A folder of its own under ``runs/``, by date and time."""
    return beside(Path(time.strftime(f"runs/%Y-%m-%d-%H%M%S-{kind}")))


def beside(path: Path) -> Path:
    """The path, or one with a number behind it if that is taken."""
    free, n = path, 1
    while free.exists():
        n += 1
        free = path.with_name(f"{path.name}-{n}")
    return free


def prepare(folder: Path) -> Path:
    """Make the folder, before anything is trained; refuse what is there already."""
    if folder.exists() and not folder.is_dir():
        raise GlocalError(f"the output folder {folder} is a file: choose another name.")
    if folder.is_dir() and any(folder.iterdir()):
        raise GlocalError(
            f"the output folder {folder} is not empty: choose another, so that nothing is lost."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GlocalError(
            f"the output folder {folder} cannot be made ({error.strerror}): choose another."
        ) from error
    return folder


def slug(spec: str) -> str:
    """A method's spec as the name of a folder."""
    return re.sub(r"[^A-Za-z0-9.=,+_-]+", "_", spec).strip("_.") or "method"


class Folder:
    """A run folder while its run goes on."""

    def __init__(self, path: Path, method: str, settings: Settings, fed: Federation) -> None:
        self.path = prepare(path)
        self._known: dict[str, Any] = {
            "method": method,
            **settings.as_toml(),
            "federation": {**plain(fed.describe), "fingerprint": fed.fingerprint},
            "versions": versions(),
        }
        self._write_settings()
        self._lines = (self.path / "metrics.jsonl").open("a", encoding="utf-8")
        self._finished = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        began = self._lines.tell() > 0
        self._lines.close()
        if kind is not None and not began and not self._finished:
            # What was asked for could not be run: leave nothing behind that looks like a run.
            for name in ("metrics.jsonl", "settings.toml"):
                (self.path / name).unlink(missing_ok=True)
            self.path.rmdir()

    def line(self, line: Mapping[str, Any]) -> None:
        """A round's line, on disk at once."""
        self._lines.write(json.dumps(plain(line)) + "\n")
        self._lines.flush()

    def finish(self, run: Run) -> None:
        """The results."""
        self._known["chosen"] = {"engine": run.settings["engine"]}
        self._write_settings()
        save(run, self.path)
        self._finished = True

    def _write_settings(self) -> None:
        write(self.path / "settings.toml", toml(self._known).encode())


def save(run: Run, folder: Path) -> None:
    """``result.json`` and the models."""
    from safetensors.torch import save as encode

    from glocal import tree

    write(folder / "result.json", dump(result({run.method: run})))
    write(folder / "final.safetensors", encode(_storable(run.model)))
    write(folder / "clients.safetensors", encode(_storable(dict(tree.flatten(run.states)))))


def _storable(tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}


def result(runs: Mapping[str, Run]) -> dict[str, Any]:
    """What ``--json`` writes: the same for the same seed, so there are no times in it."""
    return {
        "schema": SCHEMA,
        "data": plain(next(iter(runs.values())).data),
        "methods": {
            name: {"summary": plain(run.summary), "clients": plain(list(run.clients))}
            for name, run in runs.items()
        },
    }


def dump(value: Any) -> bytes:
    """JSON with an end of line."""
    return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def plain(value: Any) -> Any:
    """What JSON can hold; numbers that are not finite become null."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | bool | None) else str(value)


def toml(values: Mapping[str, Any]) -> str:
    """Values as lines and tables at the end; what is none is left out, as TOML has no null."""
    present = {k: v for k, v in values.items() if v is not None}
    lines = [f"{_quoted(k)} = {_inline(v)}" for k, v in present.items() if not isinstance(v, dict)]
    for name, table in present.items():
        if isinstance(table, dict):
            inside = [f"{_quoted(k)} = {_inline(v)}" for k, v in table.items() if v is not None]
            lines += ["", f"[{_quoted(name)}]", *inside]
    return "\n".join(lines) + "\n"


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        pairs = [f"{_quoted(k)} = {_inline(v)}" for k, v in value.items() if v is not None]
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_inline(v) for v in value if v is not None) + "]"
    # JSON's texts, numbers, true and false are TOML's too, but for the DEL character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _quoted(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _inline(key)


def write(path: Path, content: bytes) -> None:
    """Whole or not at all: write beside, flush to disk, rename."""
    beside = path.with_name(f".{path.name}.part")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise GlocalError(f"{path} cannot be written ({error.strerror}): is there room?") from error


def versions() -> dict[str, str]:
    """What ran."""
    import numpy
    import torch

    import glocal

    return {
        "glocal": glocal.__version__,
        "numpy": numpy.__version__,
        "platform": platform.platform(),
        "python": platform.python_version(),
        "schema": str(SCHEMA),
        "torch": torch.__version__,
    }
