"""Clients' states that do not fit the device: in the host's memory, or in a file on disk.

Only the rows of a cohort move, by a thread of their own, while others compute: a cohort's new rows
go back while the next one trains, and the next one's come while this one does (cohorts are known
beforehand). What comes out is the same to the bit as with all rows on the device.

There is one such thread and it does one thing after another, so whoever is read was written before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from glocal.core import hardware as machine
from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.core.types import Tree
from glocal.training.client_state.disk import DiskRows, row_bytes
from glocal.training.client_state.store import ClientStore, Make

Leaves = list[Tensor]
"""Stacked leaves, in the order of the store's ``like``."""

FILLED = 64
"""Rows that are moved at a time where all are."""


class HostRows:
    """Rows in the host's memory; ``pin`` makes them quick to move to a GPU."""

    def __init__(self, clients: int, like: Tree, pin: bool) -> None:
        self.leaves = [
            torch.empty((clients, *x.shape[1:]), dtype=x.dtype, pin_memory=pin)
            for x in tree.leaves(like)
        ]

    def locate(self, ids: Tensor) -> Tensor:
        """A row's place is its client's number."""
        return ids

    allot = locate

    def read(self, rows: Tensor, out: Sequence[Tensor], places: Sequence[int]) -> None:
        """Copy rows out."""
        at = torch.tensor(places, dtype=torch.int64)
        for kept, leaf in zip(self.leaves, out, strict=True):
            leaf[at] = kept[rows]

    def write(self, rows: Tensor, leaves: Sequence[Tensor]) -> None:
        """Copy rows in."""
        for kept, leaf in zip(self.leaves, leaves, strict=True):
            kept[rows] = leaf


Backing = HostRows | DiskRows
"""Where rows are. ``locate`` and ``allot`` are quick; the thread reads and writes."""


@dataclass
class _Ahead:
    """The next cohort's rows, on their way."""

    ids: Tensor
    good: Tensor
    """Which of them are brought and still true."""
    coming: Future[tuple[Leaves, Any]]


@dataclass
class _Recent:
    """The rows that were kept last: on their way, and at hand meanwhile."""

    ids: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    leaves: Leaves = field(default_factory=list)
    going: Future[None] | None = None


class OffloadedStore(ClientStore):
    """A :class:`ClientStore` whose rows are in a ``backing`` that is made when it is needed."""

    def __init__(
        self,
        clients: int,
        device: torch.device | str,
        open_backing: Callable[[Tree], Backing],
        place: str,
    ) -> None:
        super().__init__(clients, device)
        self.place = place
        self.like: Tree | None = None
        self.backing: Backing | None = None
        self._open = open_backing
        self._recent = _Recent()
        self._ahead: _Ahead | None = None
        self._thread = ThreadPoolExecutor(1, "glocal-states")
        self._stream: Any = None
        if self.device.type == "cuda":
            self._stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]

    def gather(self, ids: Tensor, make: Make) -> Tree:
        """The states of ``ids``, stacked, on the device."""
        host = ids.cpu()
        known = self.seen[host]
        fresh = self._fresh(host[~known], make) if not bool(known.all()) else {}
        if self.like is None or not tree.leaves(self.like):
            return fresh if self.like is None else self.like
        leaves, good = self._brought(host)
        sources = [(~known, self._in_order(fresh))] if tree.leaves(fresh) else []
        place, recent = _find(self._recent.ids, host)
        recent &= known
        if bool(recent.any()):
            rows = place[recent].to(self.device)
            sources.append((recent, [leaf[rows] for leaf in self._recent.leaves]))
        rest = known & ~recent & ~good
        if bool(rest.any()):
            backing = self._backing()
            where: Any = backing.locate(host[rest])
            count = int(rest.sum())
            got, event = self._bring(where, count, list(range(count)))
            self._wait(got, event)
            if count == len(host):
                return self._tree(got)
            sources.append((rest, got))
        for mask, source in sources:
            at = mask.nonzero().flatten().to(self.device)
            for leaf, rows in zip(leaves, source, strict=True):
                leaf[at] = rows
        return self._tree(leaves)

    def scatter(self, ids: Tensor, states: Tree) -> None:
        """Keep the new states of ``ids``: they are on their way when this returns."""
        host = ids.cpu()
        if self.like is None:
            self.like = tree.map(lambda x: torch.empty_like(x[:0], device="cpu"), states)
        self.seen[host] = True
        if not len(host) or not tree.leaves(self.like):
            return
        self.settle()
        if self._ahead is not None:
            self._ahead.good &= ~torch.isin(self._ahead.ids, host)
        leaves, event = self._in_order(states), None
        if self._stream is not None:
            # An engine may use its memory again in the next round; and the copy waits for this one.
            leaves = [leaf.clone() for leaf in leaves]
            event = torch.cuda.current_stream(self.device).record_event()
        where = self._backing().allot(host)
        going = self._thread.submit(self._keep, where, leaves, event)
        self._recent = _Recent(host, leaves, going)

    def expect(self, ids: Tensor, busy: Tensor) -> None:
        """Fetch the rows of the next cohort, but of those who are ``busy`` and will be others."""
        if self.like is None or not tree.leaves(self.like):
            return
        host = ids.cpu()
        good = self.seen[host] & ~torch.isin(host, busy.cpu())
        if not bool(good.any()):
            return
        where = self._backing().locate(host[good])
        places = good.nonzero().flatten().tolist()
        coming = self._thread.submit(self._bring, where, len(host), places)
        self._ahead = _Ahead(host, good, coming)

    def settle(self) -> None:
        """Wait until what was kept last is where it belongs."""
        if self._recent.going is not None:
            self._recent.going.result()

    def settled_file(self) -> DiskRows | None:
        """The file that the rows are in, all of them, where they are on disk."""
        self.settle()
        return self.backing if isinstance(self.backing, DiskRows) else None

    def packed(self, number: int) -> Tree:
        """Rows on disk stay there: of those it is the index of their file, which is flushed."""
        file = self.settled_file()
        return super().packed(number) if file is None else file.packed(number)

    def saved(self) -> tuple[Tensor, Tree]:
        """Which clients have a state, and those, stacked in the host's memory, if they fit it."""
        ids = self.seen.nonzero().flatten()
        if not self.like:
            return ids, {}
        check_fits(len(ids) * row_bytes(self.like))
        out = tree.map(lambda x: x.new_empty((len(ids), *x.shape[1:])), self.like)
        for a in range(0, len(ids), FILLED):  # they may not fit the device
            some = slice(a, a + FILLED)
            rows = self.rows_of(ids[some].to(self.device))
            tree.map(lambda x, new, some=some: x[some].copy_(new), out, rows)
        return ids, out

    def filled(self, ids: Tensor, states: Tree) -> ClientStore:
        """This one, with the states of ``ids`` in it; some at a time, as they may be in a file."""
        for a in range(0, len(ids), FILLED):
            some = slice(a, a + FILLED)
            self.scatter(ids[some], tree.to(tree.row(states, some), self.device))
        return self

    def _backing(self) -> Backing:
        if self.backing is None:
            assert self.like is not None
            self.backing = self._open(self.like)
        return self.backing

    def _in_order(self, states: Tree) -> Leaves:
        """By name: files do not keep the order of leaves."""
        return tree.leaves(tree.map(lambda _, x: x, self.like or {}, states))

    def _tree(self, leaves: Leaves) -> Tree:
        rest = iter(leaves)
        return tree.map(lambda _: next(rest), self.like or {})

    def _brought(self, host: Tensor) -> tuple[Leaves, Tensor]:
        """What was fetched ahead for exactly these, and of whom it is; else room for it."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and torch.equal(ahead.ids, host):
            leaves, event = ahead.coming.result()
            self._wait(leaves, event)
            return leaves, ahead.good
        self._ahead = ahead  # somebody else asks: those for the next round stay
        empty = [
            torch.empty((len(host), *x.shape[1:]), dtype=x.dtype, device=self.device)
            for x in tree.leaves(self.like or {})
        ]
        return empty, torch.zeros(len(host), dtype=torch.bool)

    def _bring(self, where: Any, count: int, places: list[int]) -> tuple[Leaves, Any]:
        """Rows from the backing on their way to ``places`` of new leaves on the device."""
        out = [
            torch.empty((count, *x.shape[1:]), dtype=x.dtype, pin_memory=self._stream is not None)
            for x in tree.leaves(self.like or {})
        ]
        self._backing().read(where, out, places)
        if self._stream is None:
            return out, None
        with torch.cuda.stream(self._stream):
            moved = [leaf.to(self.device, non_blocking=True) for leaf in out]
            return moved, self._stream.record_event()

    def _wait(self, leaves: Leaves, event: Any) -> None:
        """From here on the device computes with what was on its way."""
        if event is None:
            return
        now = torch.cuda.current_stream(self.device)
        now.wait_event(event)
        for leaf in leaves:
            leaf.record_stream(now)

    def _keep(self, where: Any, leaves: Leaves, event: Any) -> None:
        """In the thread: from the device to the backing."""
        if self._stream is not None:
            with torch.cuda.stream(self._stream):
                self._stream.wait_event(event)
                host = [torch.empty(x.shape, dtype=x.dtype, pin_memory=True) for x in leaves]
                for there, leaf in zip(host, leaves, strict=True):
                    there.copy_(leaf, non_blocking=True)
            self._stream.synchronize()
            leaves = host
        self._backing().write(where, leaves)


def check_fits(size: int) -> None:
    """Refuse so many bytes of all clients' states or models together, where memory has less."""
    free = machine.available("cpu")
    if free is not None and size > free:
        raise GlocalError(
            f"this needs all clients' states in memory, which take {size / 1e9:.1f} GB, and "
            f"{free / 1e9:.1f} GB are free: use fewer clients or a smaller model."
        )


def _find(among: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """The place of each wanted number among some, and whether it is there."""
    if not len(among):
        return torch.zeros_like(wanted), torch.zeros(len(wanted), dtype=torch.bool)
    ordered, back = among.sort()
    place = torch.searchsorted(ordered, wanted).clamp(max=len(among) - 1)
    return back[place], ordered[place] == wanted
