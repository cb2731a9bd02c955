"""A small federation and settings that train in a blink, for tests of studies."""

from __future__ import annotations

from functools import cache
from typing import Any

from sklearn.datasets import load_digits

import glocal
from glocal.data.federation import Federation

QUICK: dict[str, Any] = {"model": "mlp(8)", "rounds": 3}
ALONE = "local(lr=0.1, max_epochs=3)"


@cache
def digits(*transforms: str) -> Federation:
    """The first 300 digits among 5 clients."""
    x, y = load_digits(return_X_y=True)
    return glocal.federation(
        (x[:300] / 16).astype("float32"),
        y[:300],
        clients=5,
        partition="dirichlet(1.0)",
        transforms=transforms,
    )
