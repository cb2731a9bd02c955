"""What there is below a folder, and whether it changed: by sizes, times and locks of its files.

Content is read only where these changed, and a folder is looked through once a second however many
browsers ask. Nothing is written, and no lock is kept.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glocal.core import locks
from glocal.runs import listing, sweep
from glocal.runs.folder import COMPARISON
from glocal.runs.listing import Listed

FRESH = 1.0
"""Seconds for which a look at the folder holds."""

OF_DEPLOYMENT = (
    *("server.json", "plan.json", "roster.json", "history.jsonl"),
    *("audit.jsonl", "result.json", "error.txt"),
)
"""What a server's folder says of a deployment."""

KINDS = {COMPARISON: "comparison", sweep.FILE: "sweep"}
"""What a folder with this file is, of which the runs below are parts."""

APPROVED = "approved.json"
"""In the folder of a participant, whose ``result.json`` is no run's."""

DeploymentReader = Callable[[Path], Mapping[str, Any]]
"""What a deployment's folder says; raises a :class:`ValueError` or so if it is damaged."""


@dataclass(frozen=True)
class Group:
    """A comparison or a sweep."""

    kind: str
    runs: tuple[str, ...]
    """The paths of its runs."""


@dataclass(frozen=True)
class Seen:
    """What was there at one moment, by path below the folder, with ``/`` between names."""

    runs: Mapping[str, Listed] = field(default_factory=dict)
    groups: Mapping[str, Group] = field(default_factory=dict)
    deployments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    stamps: Mapping[str, str] = field(default_factory=dict)
    """Of each of them: another when something of it changed."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Folders of which nothing is read, and why: a link in them leads out."""
    problem: str | None = None

    def refusals(self, path: str) -> list[str]:
        """Why the report of a run or a group is not made."""
        run = self.runs.get(path)
        if run is not None and run.state == "damaged":
            return [f"{path}: {run.problem}"]
        parts = self.groups[path].runs if path in self.groups else ()
        return [f"{each}: {self.refused[each]}" for each in (path, *parts) if each in self.refused]

    def stamp(self, *paths: str) -> str:
        """Of these, or of all there is."""
        wanted = paths or sorted(self.stamps)
        return digest([self.problem, *((path, self.stamps.get(path)) for path in wanted)])


class Watched:
    """A folder that is looked at again and again, from several threads."""

    def __init__(
        self,
        root: Path,
        deployment: DeploymentReader | None = None,
        fresh: float = FRESH,
    ) -> None:
        self.root = root
        self._deployment, self._fresh = deployment, fresh
        self._looking = threading.Lock()
        self._seen, self._when = Seen(), float("-inf")
        self._read: dict[Path, tuple[str, Any]] = {}

    def look(self) -> Seen:
        """What is there now, or was a moment ago."""
        with self._looking:
            if time.monotonic() - self._when >= self._fresh:
                self._seen = _Look(self.root, self._deployment, self._read).seen()
                self._when = time.monotonic()
            return self._seen


class _Look:
    """One look: what it reads anew, it leaves to the next."""

    def __init__(
        self,
        root: Path,
        deployment: DeploymentReader | None,
        read: dict[Path, tuple[str, Any]],
    ) -> None:
        self.root, self.inside = root, root.resolve()
        self.deployment, self.read = deployment, read
        self.kept: dict[Path, tuple[str, Any]] = {}
        self.groups: dict[str, str] = {}
        self.deployments: list[Path] = []
        self.refused: dict[str, str] = {}

    def seen(self) -> Seen:
        if not os.path.isdir(self.root):
            self.read.clear()
            return Seen(problem=f"The folder {listing.printable(self.root)} is not there any more.")
        runs = {
            self._path(run.folder): run
            for run in listing.runs_below(self.root, self._run, self._skip)
        }
        deployments = {self._path(folder): self._status(folder) for folder in self.deployments}
        stamps = {self._path(folder): stamp for folder, (stamp, _) in self.kept.items()}
        below: dict[str, list[str]] = {path: [] for path in self.groups}
        for path in runs:
            for above in _above(path):
                if above in below:
                    below[above].append(path)
        groups = {}
        for path, kind in self.groups.items():
            if below[path]:
                groups[path] = Group(kind, tuple(below[path]))
                own = self._stamp(self.root / path, (*KINDS, "result.json"))
                stamps[path] = digest([own, *(stamps[each] for each in below[path])])
        self.read.clear()
        self.read.update(self.kept)
        return Seen(runs, groups, deployments, stamps, self.refused)

    def _path(self, folder: Path) -> str:
        return folder.relative_to(self.root).as_posix()

    def _skip(self, folder: Path) -> bool:
        """Whether there are no runs in a folder; on the way, which groups of runs there are."""
        if (folder / "server.json").is_file() and (folder / "plan.json").is_file():
            self.deployments.append(folder)
            return True
        if (folder / APPROVED).is_file():
            return True
        for name, kind in KINDS.items():
            if (folder / name).is_file():
                self.groups[self._path(folder)] = kind
                self._leads_out(folder)
        return False

    def _run(self, folder: Path) -> Listed:
        def damaged(folder: Path) -> Listed:
            return Listed(folder, "damaged", 0.0, problem=self.refused[self._path(folder)])

        reader = damaged if self._leads_out(folder) else listing.read
        run: Listed = self._remembered(folder, listing.FILES, reader)
        return run

    def _status(self, folder: Path) -> Mapping[str, Any]:
        def damaged(folder: Path) -> Mapping[str, Any]:
            return {"state": "damaged", "problem": self.refused[self._path(folder)]}

        reader = damaged if self._leads_out(folder) else self._deployed
        found: Mapping[str, Any] = self._remembered(folder, OF_DEPLOYMENT, reader)
        return found

    def _deployed(self, folder: Path) -> Mapping[str, Any]:
        try:
            return {"state": "unknown"} if self.deployment is None else self.deployment(folder)
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            return {"state": "damaged", "problem": " ".join(str(error).split())}

    def _remembered(self, folder: Path, names: Iterable[str], reader: Callable[[Path], Any]) -> Any:
        """What a reader said of a folder, unless that changed since."""
        stamp = digest([self._stamp(folder, names), self.refused.get(self._path(folder))])
        then, content = self.read.get(folder, (None, None))
        if then != stamp:
            content = reader(folder)
        self.kept[folder] = (stamp, content)
        return content

    def _stamp(self, folder: Path, names: Iterable[str]) -> str:
        """Sizes and times of these files, and whether somebody is writing."""
        parts: list[Any] = []
        for name in names:
            try:
                found = os.stat(folder / name)
                parts.append((found.st_size, found.st_mtime_ns, found.st_ino))
            except OSError:
                parts.append(None)
        if not os.path.exists(folder / "result.json"):
            parts.append(locks.held(folder))
        return digest(parts)

    def _leads_out(self, folder: Path) -> bool:
        """Whether a link in a folder leads to somewhere else: then nothing of it is read."""
        try:
            with os.scandir(folder) as entries:
                links = sorted(entry.name for entry in entries if entry.is_symlink())
        except OSError:
            return False
        for name in links:
            if not Path(os.path.realpath(folder / name)).is_relative_to(self.inside):
                shown = listing.printable(Path(name))
                self.refused[self._path(folder)] = f"{shown} is a link that leads out of the folder"
                return True
        return False


def _above(path: str) -> Iterator[str]:
    """The folders that a path is in."""
    while path != ".":
        path = path.rpartition("/")[0] or "."
        yield path


def digest(parts: Iterable[Any]) -> str:
    """A short text that is another where one of the parts is."""
    return hashlib.sha256(repr(list(parts)).encode("utf-8", "surrogateescape")).hexdigest()[:24]
