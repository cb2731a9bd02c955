"""Stacked models looked at on their examples, all at once and in pieces.

A training evaluates the same models on the same rows many times. From the second time on, a GPU
replays a captured CUDA graph, so that evaluating small models costs one launch.
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
from glocal.engines.base import EVAL_BATCH, PerExample
from glocal.engines.compiled.cuda_graphs import Captured

KEPT = 8
"""Ways of looking that are remembered."""

LIGHT = 1 << 26
"""Numbers of stacked models up to which a launch counts: a graph has a copy of them."""


@dataclass(frozen=True)
class BatchedEvaluation:
    """``evaluate`` of an engine, and what it has captured."""

    seen: OrderedDict[Any, Captured | None] = field(default_factory=OrderedDict)
    """By what was looked at and in which shapes; None: once so far."""

    def evaluate(
        self, look: PerExample, models: Params, x: Tensor, y: Tensor, rows: Tensor
    ) -> dict[str, Tensor]:
        """``look`` at each model on its rows."""
        piece = max(1, EVAL_BATCH // max(1, len(rows) // 8))
        parts = []
        for r in torch.split(rows, piece, dim=1):
            looks = self._looks(look, models, x, y, r)
            part = looks({"models": models, "rows": r})
            # A graph's answer is overwritten by its next.
            parts.append(tree.map(torch.clone, part) if isinstance(looks, Captured) else part)
        return tree.map(lambda *leaf: torch.cat(leaf, 1), parts[0], *parts[1:])

    def _looks(self, look: PerExample, models: Params, x: Tensor, y: Tensor, rows: Tensor) -> Any:
        def looks(inputs: Tree) -> dict[str, Tensor]:
            r = inputs["rows"]
            answer: dict[str, Tensor] = vmap(look)(inputs["models"], x[r], y[r])
            return answer

        if rows.device.type != "cuda" or tree.count(models) > LIGHT:
            return looks
        # The data by identity: what is captured holds it, so no other can have its place.
        key = (look, id(x), id(y), rows.shape)
        if key not in self.seen:
            while len(self.seen) >= KEPT:
                self.seen.popitem(last=False)
            self.seen[key] = None
            return looks
        self.seen.move_to_end(key)
        if (kept := self.seen[key]) is None:
            kept = self.seen[key] = Captured(looks, rows.device)
        return kept
