"""What the tests of components share."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

from glocal.engines import batching, sequential, vectorised


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> dict[int, Tensor]:
    """The rows [steps, batch] of each client's mini-batches, in their order, as they are drawn."""
    rows: dict[int, Tensor] = {}

    def plan(split: Any, ids: Tensor, *rest: Any) -> batching.Batches:
        batches = batching.plan(split, ids, *rest)
        for client, its, weight in zip(ids.tolist(), batches.rows, batches.weight, strict=True):
            rows[client] = its[:, weight[0] > 0]
        return batches

    for engine in (sequential, vectorised):
        monkeypatch.setattr(engine, "plan", plan)
    return rows
