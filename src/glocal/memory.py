"""Server state fed by what clients send beside their update (SCAFFOLD's control variate).

Where it is all that travels (FedEvg's examples, a generator's weights), it is the server's half of
the round: nothing else weighs, combines or steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from glocal.types import Params, Tree, Uplink
from glocal.weighting import Setting

Draw = Callable[[Tree, Setting, Tensor], tuple[Tensor, Tensor]]
"""The state, what the server knows and a key, to inputs and their labels."""


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


def no_memory() -> Memory:
    """Keeps nothing and sends nothing."""
    return Memory(
        "none",
        init=lambda params, setting, key: {},
        broadcast=lambda state: {},
        update=lambda state, uplink, setting, key: state,
    )
