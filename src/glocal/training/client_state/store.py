"""Every client's own state, in one place: stacked tensors, one row for each client.

Rows are made lazily, at a client's first round. A simulation keeps all of them here; the server's
half of a method is never handed any. Here they are on the device that trains; where they do not fit
there, :class:`glocal.training.client_state.offload.OffloadedStore` keeps them elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.types import ClientState, Tree
from glocal.training.client_state.disk import DiskRows

Make = Callable[[int], ClientState]
"""A client's first state. A :class:`FirstStates` makes many at once."""


@dataclass(frozen=True)
class FirstStates:
    """``first_states(i)`` is client i's first state, drawn from its own key.

    Few methods draw anything: most begin with what the server sent. Then a thousand new clients
    are one state a thousand times, and it is made once.
    """

    init: Callable[[Tensor], ClientState]
    """A key to a state; pure."""
    key: Callable[[int], Tensor]
    """A client's own."""

    def __call__(self, client: int) -> ClientState:
        """One client's."""
        return self.init(self.key(client))

    def many(self, clients: Sequence[int]) -> Tree:
        """All of theirs, stacked; the same bits as one by one."""
        if len(clients) > 1 and self._same_for_all():
            one = self(clients[0])
            return tree.map(lambda x: x.expand(len(clients), *x.shape), one)
        return tree.stack([self(i) for i in clients])

    def _same_for_all(self) -> bool:
        """Whether no key changes anything: vmap raises where something depends on what it maps."""
        keys = torch.stack([self.key(0), self.key(1)])
        try:
            torch.func.vmap(self.init, out_dims=None)(keys)
        except Exception:  # it depends on the key, or cannot be vmapped: one by one says it best
            return False
        return True


@dataclass(frozen=True)
class FirstByGroup:
    """First states of clients of several groups, each made by that of its group."""

    groups: tuple[FirstStates, ...]
    of_client: Tensor
    """[clients] the number of each one's group."""

    def __call__(self, client: int) -> ClientState:
        """One client's."""
        return self.groups[int(self.of_client[client])](client)

    def many(self, clients: Sequence[int]) -> Tree:
        """All of theirs, stacked."""
        numbers = self.of_client[list(clients)]
        places = [(numbers == group).nonzero().flatten() for group in range(len(self.groups))]
        made = [
            first.many([clients[i] for i in some.tolist()])
            for first, some in zip(self.groups, places, strict=True)
            if len(some)
        ]
        return tree.row(tree.cat(made), torch.cat(places).argsort())


class ClientStore:
    """``gather`` rows for a cohort, ``scatter`` them back after its round."""

    place = "device"
    """Where the rows are: device, host or disk."""

    def __init__(self, clients: int, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self.seen = torch.zeros(clients, dtype=torch.bool)
        self.rows: Tree | None = None

    def gather(self, ids: Tensor, make: Make) -> Tree:
        """The states of ``ids``, stacked; ``make(client)`` for those not there yet."""
        host = ids.cpu()
        new = ~self.seen[host]
        if not bool(new.any()):
            return tree.row(self.rows or {}, ids)
        fresh = self._fresh(host[new], make)
        if bool(new.all()):
            return fresh
        is_new = new.to(ids.device)

        def both(made: Tensor, kept: Tensor) -> Tensor:
            out = torch.empty((len(ids), *made.shape[1:]), dtype=made.dtype, device=self.device)
            out[is_new], out[~is_new] = made, kept[ids[~is_new]]
            return out

        return tree.map(both, fresh, self.rows or {})

    def scatter(self, ids: Tensor, states: Tree) -> None:
        """Keep the new states of ``ids``."""
        self.seen[ids.cpu()] = True
        if self.rows is None:
            # torch.empty is not touched until written, so clients never sampled cost no memory.
            self.rows = tree.map(
                lambda x: torch.empty(
                    (len(self.seen), *x.shape[1:]), dtype=x.dtype, device=self.device
                ),
                states,
            )

        def put(kept: Tensor, new: Tensor) -> None:
            kept[ids] = new

        tree.map(put, self.rows, states)  # by name: files do not keep the order of leaves

    def expect(self, ids: Tensor, busy: Tensor) -> None:
        """Told who takes part next, while ``busy`` train: what is far away can be fetched."""

    def settled_file(self) -> DiskRows | None:
        """The file that the rows are in, all of them, where they are on disk."""
        return None

    def rows_of(self, ids: Tensor) -> Tree:
        """The states of clients who have one."""
        return self.gather(ids, _nobody)

    def saved(self) -> tuple[Tensor, Tree]:
        """Which clients have a state, and those states, stacked."""
        ids = self.seen.nonzero().flatten()
        return ids, tree.row(self.rows, ids.to(self.device)) if self.rows else {}

    def packed(self, number: int) -> Tree:
        """What checkpoint ``number`` must hold of the rows."""
        ids, states = self.saved()
        return {"ids": ids, "states": states}

    def filled(self, ids: Tensor, states: Tree) -> ClientStore:
        """This one, with the states of ``ids`` in it: the inverse of :meth:`saved`."""
        if len(ids):
            self.scatter(ids.to(self.device), tree.to(states, self.device))
        return self

    def _fresh(self, host: Tensor, make: Make) -> Tree:
        """First states, stacked, on the device, each row its own memory."""
        clients = host.tolist()
        if isinstance(make, FirstStates | FirstByGroup):
            made = make.many(clients)
        else:
            made = tree.stack([make(i) for i in clients])
        return tree.map(lambda x: x.to(self.device).contiguous(), made)


def _nobody(client: int) -> ClientState:
    raise AssertionError(f"client {client} has no state")
