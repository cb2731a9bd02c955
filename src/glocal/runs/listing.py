"""What run folders say of their runs: state, settings and figures, read and nothing more.

A run is *finished* when its ``result.json`` is there. It is *running* when it is not, and a process
holds the lock on the folder's ``.lock``; else it has *stopped*. What cannot be read is *damaged*,
and says why. Nothing is written, and no lock is kept, so that a run which goes on is not disturbed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glocal.core import locks
from glocal.core.errors import GlocalError
from glocal.core.validation import fits
from glocal.experiment.config import Config, plain_kinds
from glocal.experiment.result_files import SCHEMA
from glocal.runs.settings import FACTS

STATES = ("finished", "running", "stopped", "damaged")

FILES = ("settings.toml", "metrics.jsonl", "result.json")
"""A folder with one of these is a run's, or has been."""

FIGURES = (
    "mean",
    "worst10",
    "best10",
    "gini",
    "gap",
    "std",
    "median",
    "local_mean",
    "benefit",
    "better_off",
    "worse_off",
    "undecided",
    "params_up",
    "params_down",
    "bytes_up",
    "bytes_down",
    "gradient_evaluations",
    "epsilon",
)
"""What a summary says in a number each, and what runs are asked for by.

``same`` is not among them: runs are asked for by the setting of that name.
"""


@dataclass(frozen=True)
class Listed:
    """A run folder as it is now."""

    folder: Path
    state: str
    when: float
    """When one of its files last changed, in seconds since 1970."""
    method: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """By name, as in ``settings.toml``, with the defaults of what is not in it."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The tables of :data:`~glocal.runs.settings.FACTS`."""
    summary: Mapping[str, Any] = field(default_factory=dict)
    """Of a finished run."""
    rounds_done: int = 0
    """Of all repeats together."""
    rounds_asked: int = 0
    """The same; 0 of ``local``, which has none."""
    problem: str | None = None
    """What is wrong with the folder, in a few words."""

    @property
    def name(self) -> str:
        """The folder as text that can be printed."""
        return printable(self.folder)

    @property
    def alone(self) -> bool:
        """Whether it is a run of ``local``, the local baseline itself."""
        return is_local(self.method)

    @property
    def fingerprint(self) -> str | None:
        """Of the federation: the same data, partitioned and split in the same way."""
        found = self.facts.get("federation", {}).get("fingerprint")
        return found if isinstance(found, str) else None

    def figure(self, name: str) -> float | None:
        """A number of the summary, if it is there and is one."""
        found = self.summary.get(name)
        return found if fits(found, float) else None

    def value(self, name: str) -> Any:
        """Anything that can be sorted or asked by: a setting, a figure, or about the folder."""
        if name in ("folder", "state", "when", "method"):
            return self.name if name == "folder" else getattr(self, name)
        # A partition may have been chosen by rule, and data may bring clients of its own.
        if name in ("partition", "clients"):
            return self.facts.get("federation", {}).get(name) or self.settings.get(name)
        return self.figure(name) if name in FIGURES else self.settings.get(name)

    def as_json(self) -> dict[str, Any]:
        """What ``--json`` writes of it."""
        return {
            "folder": self.name,
            "state": self.state,
            "problem": self.problem,
            "when": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(self.when)),
            "rounds_done": self.rounds_done,
            "rounds_asked": self.rounds_asked,
            "method": self.method,
            "partition": self.value("partition"),
            "settings": dict(self.settings),
            **{name: self.facts.get(name, {}) for name in FACTS},
            "summary": {n: self.figure(n) for n in (*FIGURES, "same")} if self.summary else None,
        }


def is_local(method: str) -> bool:
    """Whether a spec is of ``local``."""
    return method.split("(")[0].strip() == "local"


def printable(path: Path) -> str:
    """A path as text, whatever its bytes are: no end of line, no colours, no broken letters."""
    return "".join(c if c.isprintable() else "\ufffd" for c in str(path))


def find(places: Sequence[Path]) -> tuple[list[Listed], list[Path]]:
    """All runs in these places, also inside comparisons, and the folders there without any."""
    found: dict[Path, Listed] = {}
    strange: list[Path] = []
    for place in places:
        if not os.path.isdir(place):
            raise GlocalError(f"there is no folder {place}: check its name.")
        below = [run for run in runs_below(place) if run.folder.resolve() not in found]
        found |= {run.folder.resolve(): run for run in below}
        if place.resolve() not in found:
            for folder in subfolders(place):
                inside = folder.resolve()
                if not any(run.is_relative_to(inside) for run in found):
                    strange.append(folder)
    return list(found.values()), strange


def runs_below(
    folder: Path,
    reader: Callable[[Path], Listed] | None = None,
    skip: Callable[[Path], bool] = lambda folder: False,
) -> Iterator[Listed]:
    """The run in a folder, or those below; links and hidden folders are not entered.

    ``reader`` may remember what :func:`read` said of a folder; those to ``skip`` are passed over.
    """
    if skip(folder):
        return
    ours = [name for name in FILES if os.path.isfile(folder / name)]
    own = (reader or read)(folder) if ours else None
    if own is not None and own.method and own.facts.get("federation"):  # a run wrote its settings
        yield own
        return
    inside = [run for path in subfolders(folder) for run in runs_below(path, reader, skip)]
    # A comparison has a result of all its runs, and no settings: its runs speak for it.
    if own is not None and ("settings.toml" in ours or not inside):
        yield own
    yield from inside


def subfolders(folder: Path) -> list[Path]:
    """Those inside; none if it may not be read, or is gone by now."""
    try:
        with os.scandir(folder) as inside:
            return sorted(
                Path(entry.path)
                for entry in inside
                if not entry.name.startswith(".")
                and entry.name != "checkpoints"
                and entry.is_dir(follow_symlinks=False)
            )
    except OSError:
        return []


def read(folder: Path) -> Listed:
    """The run in one folder; what is wrong with it is said, never raised."""
    about: dict[str, Any] = {"state": "damaged", "when": _changed(folder)}
    result = folder / "result.json"
    try:
        about |= _asked(folder)
        running = not result.is_file() and locks.held(folder)
        if not running and result.is_file():  # or it finished while we looked
            about |= _found(result, about)
        else:
            about["rounds_done"], about["problem"] = _rounds(folder / "metrics.jsonl")
            about["state"] = "running" if running else "stopped"
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        about["problem"] = " ".join(str(reason).split())
    return Listed(folder, **about)


def _changed(folder: Path) -> float:
    """When the run last wrote something."""
    times = [0.0]
    for path in (folder / name for name in FILES):
        try:
            times.append(path.stat().st_mtime)
        except OSError:
            continue
    return max(times)


def _asked(folder: Path) -> dict[str, Any]:
    """The method and the settings; none of them if a run was saved from Python."""
    file = folder / "settings.toml"
    if not file.is_file():
        if (folder / "result.json").is_file():
            return {}
        raise ValueError("there is no settings.toml")
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # no text, or no TOML
        raise ValueError(f"settings.toml is not valid TOML ({error})") from error
    method = found.pop("method", None)
    if not isinstance(method, str):
        raise ValueError("settings.toml names no method, so it is not a run's")
    facts = {k: t if isinstance(t := found.pop(k, {}), dict) else {} for k in FACTS}
    settings: dict[str, Any] = {
        f.name: f.default for f in dataclasses.fields(Config) if f.name in plain_kinds()
    }
    settings |= found
    asked: dict[str, Any] = {"method": method, "settings": settings, "facts": facts}
    counts = [settings["rounds"], settings["repeats"]]
    if all(isinstance(n, int) for n in counts) and not is_local(method):
        asked["rounds_asked"] = counts[0] * counts[1]
    return asked


def _found(file: Path, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a finished run."""
    try:
        result = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"result.json is not valid JSON ({error})") from error
    if not isinstance(result, dict) or "methods" not in result:
        raise ValueError("result.json is not a run's")
    if result.get("schema") != SCHEMA:
        raise ValueError(
            f"result.json has schema {result.get('schema')}, and this version reads {SCHEMA}"
        )
    methods, method = result["methods"], asked.get("method", "")
    if not method and isinstance(methods, dict) and len(methods) == 1:
        (method,) = methods
    one = methods.get(method) if isinstance(methods, dict) else None
    summary = one.get("summary") if isinstance(one, dict) else None
    if not isinstance(summary, dict):
        what = f"figures of {method}" if method else "figures of just one run"
        raise ValueError(f"result.json has no {what}")
    known: dict[str, Any] = {"state": "finished", "summary": summary, "method": method}
    known["rounds_done"] = asked.get("rounds_asked", 0)
    if "method" not in asked:
        data = d if isinstance(d := result.get("data"), dict) else {}
        known["facts"] = {"federation": data}
        own = {k: summary[k] for k in ("rounds", "repeats") if k in summary}
        known["settings"] = {**{k: data[k] for k in ("data", "seed") if k in data}, **own}
    return known


def _rounds(file: Path) -> tuple[int, str | None]:
    """How many rounds there are lines of, and what is wrong with the others."""
    if not file.is_file():
        return 0, None
    done, strange = set(), []
    lines = file.read_bytes().split(b"\n")
    lines.pop()  # what follows the last end of line is still being written
    for number, text in enumerate(lines, 1):
        try:
            line = json.loads(text)
            done.add((line.get("repeat", 1), int(line["round"])))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            strange.append(number)
    if not strange:
        return len(done), None
    more = f" and {len(strange) - 1} more" if strange[1:] else ""
    return len(done), f"line {strange[0]}{more} of metrics.jsonl cannot be read"
