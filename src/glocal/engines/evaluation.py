"""Stacked models evaluated on their examples, all at once and in pieces.

A training evaluates the same models on the same rows again and again. What is evaluated often on a
GPU is captured as a CUDA graph, so that small models cost a launch each time.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from glocal.core import tree
from glocal.core.types import Params, Tree
from glocal.engines.base import PerExample, examples_at_once
from glocal.engines.compiled import Captured

MAX_GRAPHS = 8
"""Evaluations that are remembered."""

OFTEN = 8
"""Evaluations after which one is captured: capturing takes about as long as ten of them."""

MAX_CAPTURED = 1 << 26
"""Numbers of stacked models up to which a launch counts: a graph has a copy of them."""


@dataclass(frozen=True)
class BatchedEvaluation:
    """``evaluate`` of an engine, and what it has captured."""

    seen: OrderedDict[Any, Captured | int] = field(default_factory=OrderedDict)
    """By what was evaluated and in which shapes; a number: so many times so far."""

    def evaluate(
        self, metrics: PerExample, models: Params, x: Tensor, y: Tensor, rows: Tensor
    ) -> dict[str, Tensor]:
        """``metrics`` of each model on its rows."""
        parts = []
        for some in torch.split(rows, eval_rows(len(rows), y), dim=1):
            function = self._function(metrics, models, x, y, some)
            part = function({"models": models, "rows": some})
            # A graph's output is overwritten by its next.
            parts.append(tree.map(torch.clone, part) if isinstance(function, Captured) else part)
        return tree.map(lambda *leaf: torch.cat(leaf, 1), parts[0], *parts[1:])

    def _function(
        self, metrics: PerExample, models: Params, x: Tensor, y: Tensor, rows: Tensor
    ) -> Any:
        def stacked(inputs: Tree) -> dict[str, Tensor]:
            chosen = inputs["rows"]
            values: dict[str, Tensor] = vmap(metrics)(inputs["models"], x[chosen], y[chosen])
            return values

        if rows.device.type != "cuda" or tree.count(models) > MAX_CAPTURED:
            return stacked
        # The data by identity: what is captured holds it, so no other can have its place.
        key = (metrics, id(x), id(y), rows.shape)
        known = self.seen.pop(key, 0)
        if isinstance(known, int):
            known = known + 1 if known < OFTEN else Captured(stacked, rows.device)
        while len(self.seen) >= MAX_GRAPHS:
            self.seen.popitem(last=False)
        self.seen[key] = known
        return stacked if isinstance(known, int) else known


def eval_rows(clients: int, y: Tensor) -> int:
    """Examples of each of so many clients that go through their models at once."""
    return max(1, examples_at_once(y) // max(1, clients // 8))
