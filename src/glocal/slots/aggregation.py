"""How a cohort's updates are aggregated into one: robustness lives in this slot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from glocal.core import tree
from glocal.core.types import Params
from glocal.slots.weighting import Setting


@dataclass(frozen=True)
class Combine:
    """An aggregator: ``combine(updates, p)`` of updates stacked over clients and their weights."""

    name: str
    combine: Callable[[Params, Tensor], Params]
    weighted: bool = True
    """Whether the weights are used; if not, an explicit weighting is refused."""
    robust: bool = False
    """Whether it is made for malicious clients: an update that is not finite is then left out,
    where else it would stop the run."""
    check: Callable[[Setting], None] = lambda setting: None
    """Raises, before anyone trains, where a round would have too few clients."""


def mean() -> Combine:
    """The weighted mean of the updates, ``Σ p_i Δ_i``."""
    return Combine("mean", lambda updates, p: tree.map(lambda x: weighted_sum(x, p), updates))


def weighted_sum(stacked: Tensor, p: Tensor) -> Tensor:
    """``Σ p_i x_i`` over the first dimension."""
    shape = stacked.shape[1:]
    total = p.to(stacked.dtype).unsqueeze(0) @ stacked.reshape(len(stacked), shape.numel())
    return total.view(shape)
