"""The federation that a method is tested on where none is given."""

from __future__ import annotations

from glocal.core import rng
from glocal.data.federation import Federation, federation

SIZES = (5, 9, 14, 23, 41, 12)
"""Examples of each client."""


def ragged() -> Federation:
    """Six clients of clearly different sizes; three classes of six features."""
    owner = [k for k, size in enumerate(SIZES) for _ in range(size)]
    key = rng.key(7)
    x = rng.normal(rng.fold(key, 0), (len(owner), 6))
    y = (x @ rng.normal(rng.fold(key, 1), (6, 3))).argmax(1)
    return federation(x, y, clients=owner)
