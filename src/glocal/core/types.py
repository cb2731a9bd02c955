"""The vocabulary: trees of tensors, and what crosses the network between server and client.

Every state is a tree: a nested ``dict`` whose leaves are tensors. Trees are passed in and returned,
never mutated. Where a state lives is part of its name:

==============  =====================  ====================
state           lives                  crosses the network
==============  =====================  ====================
``ServerState`` on the server          never whole
``Downlink``    server to client       yes
``ClientState`` on the client          never
``Uplink``      client to server       yes
``Carry``       one round, one client  never
==============  =====================  ====================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

Params = dict[str, Tensor]
"""A model's parameters by name, as ``nn.Module.named_parameters`` names them."""

Tree = dict[str, Any]
"""A nested dict with tensors at its leaves."""

Batch = dict[str, Tensor]
"""``x`` and ``y``, and ``weight``: 1 for an example, 0 for padding; where data has protected
attributes, their codes as ``attributes``, too."""

ClientState = Tree
Carry = Tree

Downlink = Tree
"""The server's message: ``params`` (the shared ones), ``round``, ``lr`` (the schedule's factor) and
what the server memory broadcasts. Scalars are tensors: a compiled step is not traced again."""


@dataclass(frozen=True)
class Uplink:
    """The messages of a cohort, stacked: the first dimension of every leaf is the client."""

    ids: Tensor
    """The clients, as indices into the federation."""
    n: Tensor
    """The number of training examples of each."""
    update: Params
    """The new shared parameters minus the received ones."""
    loss: Tensor | None
    """The received model's loss on each client's training data, if the weighting needs it."""
    extra: Tree
    """Whatever else the method sends (SCAFFOLD's change of the control variate)."""

    said: Tree | None = None
    """What clients say of updates that they have protected themselves, before these left them (see
    :mod:`glocal.slots.privacy`); none: that is left to whoever simulates them."""

    def subset(self, chosen: Any) -> Uplink:
        """What some of the cohort send, in the order of ``chosen`` (a mask, or positions)."""

        def rows(part: Tree) -> Tree:
            return {k: rows(v) if isinstance(v, dict) else v[chosen] for k, v in part.items()}

        loss = None if self.loss is None else self.loss[chosen]
        ids, n = self.ids[chosen], self.n[chosen]
        said = None if self.said is None else rows(self.said)
        return Uplink(ids, n, rows(self.update), loss, rows(self.extra), said)
