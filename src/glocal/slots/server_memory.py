"""Server state fed by what clients send beside their update (SCAFFOLD's control variate)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from glocal.core.types import Params, Tree, Uplink
from glocal.slots.weighting import Setting


@dataclass(frozen=True)
class Memory:
    """``init`` at the start, ``broadcast`` into the downlink, ``update`` from the cohort.

    The keys are for what the server draws; every start and every round has its own.
    """

    name: str
    init: Callable[[Params, Setting, Tensor], Tree]
    broadcast: Callable[[Tree], Tree]
    update: Callable[[Tree, Uplink, Setting, Tensor], Tree] = lambda state, *cohort: state


def no_memory() -> Memory:
    """Nothing is kept, nothing sent."""
    return Memory("none", init=lambda params, setting, key: {}, broadcast=lambda state: {})
