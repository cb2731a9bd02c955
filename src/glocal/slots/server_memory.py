"""Server state fed by what clients send beside their update (SCAFFOLD's control variate).

Where it is all that travels (FedEvg's examples, a generator's weights), it is the server's half of
the round: nothing else weighs, combines or steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from glocal.core.types import Params, Tree, Uplink
from glocal.data.federation import Federation
from glocal.slots.weighting import Setting

Draw = Callable[[Tree, Setting, Tensor], tuple[Tensor, Tensor]]
"""The state, what the server knows and a key, to inputs and their labels."""


@dataclass(frozen=True)
class Vector:
    """How a memory moves by one vector of each client: what privacy can clip and make noisy."""

    message: Callable[[Tree], Params]
    """What one client would send beside its update, as the named parts of one vector."""
    like: Callable[[Tree], Params]
    """Tensors of those parts' shapes, from the server's state: an empty cohort shows none."""
    move: Callable[[Tree, Params, Setting, Tensor], Tree]
    """As ``update``, but by the vectors' mean, which is all of the cohort that it is given."""


@dataclass(frozen=True)
class Memory:
    """``init`` at the start, ``broadcast`` into the downlink, ``update`` from the cohort.

    The keys are for what the server draws; every start and every round has its own.
    """

    name: str
    init: Callable[[Params, Setting, Tensor], Tree]
    broadcast: Callable[[Tree], Tree]
    update: Callable[[Tree, Uplink, Setting, Tensor], Tree]
    alone: bool = False
    """Whether it is all that travels: the model's own parameters stay at home."""
    draw: Draw | None = None
    """Labelled examples that stand for everybody's data, of methods that make some."""
    vector: Vector | None = None
    """Its private way, of a memory that is all that travels; none: privacy is refused."""
    fits: Callable[[Federation], None] | None = None
    """Refuses, before anyone trains, data that it makes no examples of. The server is told nothing:
    in a federation every client would look at its own."""


def no_memory() -> Memory:
    """Keeps nothing and sends nothing."""
    return Memory(
        "none",
        init=lambda params, setting, key: {},
        broadcast=lambda state: {},
        update=lambda state, uplink, setting, key: state,
    )
