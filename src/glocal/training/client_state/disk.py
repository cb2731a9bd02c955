"""Clients' states in a file: a row of bytes for each client, in slots that a checkpoint can trust.

A new state is never written over the old one but to a free slot, and the index (which client's row
is in which slot) is kept in memory. So what a checkpoint holds of all states is the index and a
checksum for each row: as long as a kept checkpoint refers to a slot, nobody writes to it, and a run
that was killed at any moment finds every row of its last checkpoint as it was.

The file is read and written by rows, not mapped into memory: a full disk is then an error with a
sentence, and no signal that ends the process, and what is read is not counted as the process's own.
The system keeps of the file in memory what there is room for.
"""

from __future__ import annotations

import errno
import os
import tempfile
import weakref
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.errors import GlocalError, NoRoomError
from glocal.core.types import Tree

PARTS = 512
"""Pieces of memory that are read or written in one call: systems allow 1,024."""


@dataclass(frozen=True)
class Rows:
    """Some clients' slots; ``sums`` are checksums to be compared, where that was not done yet."""

    clients: list[int]
    slots: list[int]
    sums: dict[int, int]


class DiskRows:
    """The rows of up to ``clients`` clients, each as long as the leaves of ``like``.

    Without a ``path`` the file has no name, in the system's temporary folder, and is gone with the
    process, however that ends. ``anew``: what is in the file is nobody's.
    """

    def __init__(
        self, clients: int, like: Tree, path: Path | None = None, *, anew: bool = True
    ) -> None:
        self.like, self.path = like, path
        self.size = row_bytes(like)
        self.index = torch.full((clients,), -1)
        self.sums = torch.zeros(clients, dtype=torch.int64)
        self.unchecked = torch.zeros(clients, dtype=torch.bool)
        self.slots = 0
        self.free: list[int] = []
        self.waiting: list[tuple[int, int]] = []
        """Checkpoints up to this number may refer to this slot, and the present does not."""
        self.young: set[int] = set()
        """Slots that were taken since the last checkpoint, so that none refers to them."""
        self.mark = -1
        """The last checkpoint's number."""
        self._file = _opened(path, anew)
        weakref.finalize(self, os.close, self._file)

    def locate(self, ids: Tensor) -> Rows:
        """Where the rows of clients are that are there."""
        clients, slots = ids.tolist(), self.index[ids].tolist()
        doubtful = ids[self.unchecked[ids]]
        sums = dict(zip(doubtful.tolist(), self.sums[doubtful].tolist(), strict=True))
        return Rows(clients, slots, sums)

    def read(self, rows: Rows, out: Sequence[Tensor], places: Sequence[int]) -> None:
        """Fill ``places`` of the stacked leaves with rows."""
        parts = _bytes(out)
        for client, slot, at in zip(rows.clients, rows.slots, places, strict=True):
            row = [part[at] for part in parts]
            try:
                got = _moved(os.preadv, self._file, row, slot * self.size)
            except OSError as error:
                raise self._damaged(error.strerror or "it cannot be read") from error
            if got != self.size:
                raise self._damaged("it ends too early")
            if client in rows.sums:
                if _checksum(row) != rows.sums[client]:
                    raise self._damaged(f"the row of client {client} is not as it was written")
                self.unchecked[client] = False

    def allot(self, ids: Tensor) -> Rows:
        """Slots for new rows of clients; from now on these are the present ones."""
        clients = ids.tolist()
        old = self.index[ids].tolist()
        short = len(clients) - len(self.free)
        if short > 0:
            self.free += range(self.slots, self.slots + short)
            self.slots += short
        slots = [self.free.pop() for _ in clients]
        self.index[ids] = torch.tensor(slots, dtype=torch.int64)
        self.unchecked[ids] = False
        for slot in old:
            if slot >= 0:
                self._release(slot)
        self.young.update(slots)
        return Rows(clients, slots, {})

    def write(self, rows: Rows, leaves: Sequence[Tensor]) -> None:
        """Write stacked rows to the slots that were allotted."""
        parts = _bytes([leaf.contiguous() for leaf in leaves])
        sums = []
        try:
            for i, slot in enumerate(rows.slots):
                row = [part[i] for part in parts]
                if _moved(os.pwritev, self._file, row, slot * self.size) != self.size:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                sums.append(_checksum(row) if self.path is not None else 0)
        except OSError as error:
            raise NoRoomError(
                f"clients' states cannot be written to {self.where} ({error.strerror}): make room, "
                "or set TMPDIR or the output folder to a larger disk."
            ) from error
        self.sums[torch.tensor(rows.clients)] = torch.tensor(sums, dtype=torch.int64)

    @property
    def where(self) -> str:
        """For messages."""
        return str(self.path or tempfile.gettempdir())

    def packed(self, number: int) -> Tree:
        """What checkpoint ``number`` must hold; the rows are on disk when this returns."""
        os.fsync(self._file)
        self.mark = number
        self.young.clear()
        ids = (self.index >= 0).nonzero().flatten()
        after, slots = (
            torch.tensor([w[i] for w in self.waiting], dtype=torch.int64) for i in (0, 1)
        )
        return {
            "ids": ids,
            "slots": self.index[ids],
            "sums": self.sums[ids],
            "waiting": {"after": after, "slots": slots},
            "like": self.like,
        }

    def reclaim(self, oldest: int) -> None:
        """Checkpoints before ``oldest`` are gone: what only they referred to can be used again."""
        self.free += [slot for after, slot in self.waiting if after < oldest]
        self.waiting = [(after, slot) for after, slot in self.waiting if after >= oldest]

    @classmethod
    def reopened(cls, clients: int, held: Tree, path: Path, number: int) -> DiskRows:
        """As :meth:`packed` left it; every row is checked when it is first read."""
        if not path.is_file():
            raise GlocalError(
                f"the clients' states in {path} are missing, and the checkpoints beside it refer "
                "to them: bring the file back, or train it again."
            )
        self = cls(clients, held["like"], path, anew=False)
        ids, slots = held["ids"], held["slots"]
        self.index[ids], self.sums[ids] = slots, held["sums"]
        self.unchecked[ids] = True
        after, waiting = (held["waiting"][k].tolist() for k in ("after", "slots"))
        self.waiting = list(zip(after, waiting, strict=True))
        taken = {*slots.tolist(), *waiting}
        self.slots = max(taken, default=-1) + 1
        self.free = [slot for slot in range(self.slots) if slot not in taken]
        self.mark = number
        if path.stat().st_size < (int(slots.max()) + 1 if len(slots) else 0) * self.size:
            raise self._damaged("it ends too early")
        return self

    def _release(self, slot: int) -> None:
        """Not the present any more: free at once, or when no checkpoint refers to it."""
        if slot in self.young:
            self.young.remove(slot)
            self.free.append(slot)
        else:
            self.waiting.append((self.mark, slot))

    def _damaged(self, why: str) -> GlocalError:
        return GlocalError(f"the clients' states in {self.where} are damaged ({why}): train anew.")


def _opened(path: Path | None, anew: bool) -> int:
    try:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT | (os.O_TRUNC if anew else 0), 0o666)
        file, name = tempfile.mkstemp(prefix="glocal-states-")
        os.unlink(name)  # it lives as long as it is open
        return file
    except OSError as error:
        raise GlocalError(
            f"no file for clients' states can be made in {path or tempfile.gettempdir()} "
            f"({error.strerror}): set TMPDIR to a folder that can be written to."
        ) from error


def row_bytes(like: Tree) -> int:
    """Bytes of one client's state; ``like`` is stacked, with any number of rows."""
    return sum(x.shape[1:].numel() * x.element_size() for x in tree.leaves(like))


def _bytes(leaves: Sequence[Tensor]) -> list[Any]:
    """Each stacked leaf as rows of bytes, sharing its memory; those that hold nothing left out."""
    return [
        leaf.detach().reshape(len(leaf), -1).view(torch.uint8).numpy()
        for leaf in leaves
        if leaf.numel()
    ]


def _moved(call: Callable[..., int], file: int, row: Sequence[Any], offset: int) -> int:
    """Bytes that were read or written in all."""
    done = 0
    for a in range(0, len(row), PARTS):
        done += call(file, row[a : a + PARTS], offset + done)
    return done


def _checksum(row: Sequence[Any]) -> int:
    checksum = 0
    for part in row:
        checksum = zlib.crc32(part, checksum)
    return checksum
