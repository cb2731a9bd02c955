"""Every client's own state, in one place: stacked tensors, one row for each client.

Rows are made lazily, at a client's first round. A simulation keeps all of them here; the server's
half of a method is never handed any.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from glocal import tree
from glocal.types import ClientState, Tree


class ClientStore:
    """``gather`` rows for a cohort, ``scatter`` them back after its round."""

    def __init__(self, clients: int, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self.seen = torch.zeros(clients, dtype=torch.bool)
        self.rows: Tree | None = None

    def gather(self, ids: Tensor, make: Callable[[int], ClientState]) -> Tree:
        """The states of ``ids``, stacked; ``make(client)`` for those not there yet."""
        host = ids.cpu()
        fresh = {int(i): make(int(i)) for i in host[~self.seen[host]].tolist()}
        kept = self.rows or {}
        if not fresh:
            return tree.row(kept, ids)
        states = [fresh[i] if i in fresh else tree.row(kept, i) for i in host.tolist()]
        return tree.to(tree.stack(states), self.device)

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

    def saved(self) -> tuple[Tensor, Tree]:
        """Which clients have a state, and those states, stacked."""
        ids = self.seen.nonzero().flatten()
        return ids, tree.row(self.rows, ids.to(self.device)) if self.rows else {}

    @classmethod
    def restored(
        cls, clients: int, ids: Tensor, states: Tree, device: torch.device | str
    ) -> ClientStore:
        """The inverse of :meth:`saved`."""
        store = cls(clients, device)
        if len(ids):
            store.scatter(ids.to(store.device), tree.to(states, store.device))
        return store
