"""Server state fed by what clients send beside their update (SCAFFOLD's control variate)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from glocal.types import Params, Tree, Uplink
from glocal.weighting import Setting


@dataclass(frozen=True)
class Memory:
    """``init`` at the start, ``broadcast`` into the downlink, ``update`` from the cohort."""

    name: str
    init: Callable[[Params, Setting], Tree]
    broadcast: Callable[[Tree], Tree]
    update: Callable[[Tree, Uplink, Setting], Tree]


def no_memory() -> Memory:
    """Keeps nothing and sends nothing."""
    return Memory(
        "none",
        init=lambda params, setting: {},
        broadcast=lambda state: {},
        update=lambda state, uplink, setting: state,
    )
