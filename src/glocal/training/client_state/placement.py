"""Where clients' states are kept: on the device, in the host's memory or on disk, by their size.

The place changes how long a round takes and nothing that comes out.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from glocal.core import hardware as machine
from glocal.core.errors import GlocalError, unknown
from glocal.core.progress import print_note
from glocal.core.types import Tree
from glocal.training.client_state.disk import DiskRows
from glocal.training.client_state.offload import HostRows, OffloadedStore
from glocal.training.client_state.store import ClientStore

PLACES = ("auto", "device", "host", "disk")

SHARE = 3
"""States may take up a third of what is free: there is a copy for results, and a cohort trains."""


def check_place(states: str) -> None:
    """Refuse a place that there is not."""
    if states not in PLACES:
        raise unknown("place for clients' states", states, PLACES)


def rule(size: int, device: torch.device | str, taken: int = 0) -> str:
    """The place for so many bytes of states, where ``taken`` more are going to be needed."""
    device = torch.device(device)
    if _fits(size, device, 0 if device.type == "cuda" else taken):
        return "device"
    if device.type == "cuda" and _fits(size, torch.device("cpu"), taken):
        return "host"
    return "disk" if hasattr(os, "preadv") else "device"


def _fits(size: int, device: torch.device, taken: int) -> bool:
    free = machine.available(device)
    return free is None or size * SHARE <= free - taken


@dataclass(frozen=True)
class Storage:
    """The place of states, or the rule for it, and where files go."""

    place: str = "auto"
    folder: Path | None = None
    """Where a file of states stays for checkpoints; none: nobody needs it after the run."""
    note: Callable[[str], None] = print_note
    """Told in a sentence where a file is."""
    what: str = "clients' states"
    """What is stored, for messages."""

    def __post_init__(self) -> None:
        check_place(self.place)

    def chosen(self, size: int, device: torch.device | str) -> str:
        """The place for so many bytes of states."""
        return rule(size, device) if self.place == "auto" else self.place

    def store(
        self, clients: int, one: int, device: torch.device | str, stage: int = 0, rows: int = 0
    ) -> ClientStore:
        """A store for states of ``one`` bytes each; ``rows`` of them will be there for certain."""
        place = self.chosen(clients * one, device) if one else "device"
        if place == "device":
            return ClientStore(clients, device)
        if place == "host":
            pin = torch.device(device).type == "cuda"
            return OffloadedStore(clients, device, lambda like: HostRows(clients, like, pin), place)
        if not hasattr(os, "preadv"):
            raise GlocalError(
                "clients' states cannot be kept on disk on this system: use --states device."
            )
        path = self.path(stage)
        before = path.stat().st_size if path and path.is_file() else 0
        check_room(rows * one, path.parent if path else None, f"{self.what} take", before)
        where = path or f"{tempfile.gettempdir()} (TMPDIR), without a name"
        self.note(f"{self.what}, up to {shown(clients * one)}, go to disk: {where}.")
        return OffloadedStore(clients, device, lambda like: DiskRows(clients, like, path), place)

    def restored(
        self,
        empty: Callable[[], ClientStore],
        clients: int,
        packed: Tree,
        device: torch.device | str,
        stage: int,
        number: int,
    ) -> ClientStore:
        """The store that checkpoint ``number`` holds, or whose file it refers to."""
        if "slots" not in packed:
            return empty().filled(packed["ids"], packed["states"])
        path = self.path(stage)
        assert path is not None
        file = DiskRows.reopened(clients, packed, path, number)
        store = OffloadedStore(clients, device, lambda like: file, "disk")
        store.backing, store.like = file, packed["like"]
        store.seen[packed["ids"]] = True
        return store

    def path(self, stage: int) -> Path | None:
        """The file of a stage's states."""
        return self.folder / f"states-{stage}.rows" if self.folder else None


def check_room(need: int, folder: Path | None, subject: str, written: int = 0) -> None:
    """Refuse what does not fit the disk, of which ``written`` bytes are there, with the numbers."""
    there = folder or Path(tempfile.gettempdir())
    while not there.exists() and there != there.parent:
        there = there.parent
    free = shutil.disk_usage(there).free + written
    if need > free:
        instead = "choose an output folder on" if folder else "set TMPDIR to a folder on"
        raise GlocalError(
            f"{subject} {shown(need)} on disk, and {shown(free)} are free in {there}: "
            f"{instead} a larger disk, lower --clients or use a smaller model."
        )


def shown(size: int) -> str:
    """A size in words."""
    return f"{size / 1e9:.1f} GB" if size >= 10**9 else f"{size / 1e6:.1f} MB"
