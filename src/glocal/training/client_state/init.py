"""How clients make their state when they first take part, one by one or many at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.types import ClientState, Tree


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
        return stacked(self, clients)

    def _same_for_all(self) -> bool:
        """Whether no key changes anything: vmap raises where something depends on what it maps."""
        keys = torch.stack([self.key(0), self.key(1)])
        try:
            torch.func.vmap(self.init, out_dims=None)(keys)
        except Exception:  # it depends on the key, or cannot be vmapped: one by one says it best
            return False
        return True


def stacked(make: Callable[[int], ClientState], clients: Sequence[int]) -> Tree:
    """One by one."""
    return tree.stack([make(i) for i in clients])
