"""The gate: each client's message is checked before it counts, and one that fails is left out.

A simulation's engine gives every message its names, shapes and types, so there what is not finite
is all that can be wrong (:mod:`glocal.training.divergence`). Very long updates are let through
there, as honest ones of few examples may be, unless ``longest_update`` is given. What comes from
elsewhere is checked for everything (:mod:`glocal.deploy.remote`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.types import Tree

LONGEST = 10.0
"""An update may be so many times as long as the median of its cohort's."""

STRIKES = 3
"""A client whose answer was refused so often in a row is not asked any more."""


@dataclass(frozen=True)
class Expected:
    """What one client's message must look like."""

    update: Any
    """The structure (:func:`glocal.core.tree.structure`) of the update."""
    extra: Any
    said: Any
    """None: clients do not protect their updates themselves."""
    loss: bool
    """Whether the loss of the received model is asked for."""

    def objection(self, sent: Mapping[str, Tree], examples: Any, declared: int) -> str | None:
        """What is wrong with a message, in a word or two; nothing, if it is fine."""
        parts = {"update": self.update, "extra": self.extra}
        if self.said is not None:
            parts["said"] = self.said
        if self.loss:
            parts["loss"] = {"loss": ((), torch.float32)}
        if sent.keys() != parts.keys():
            return "names"
        for name, structure in parts.items():
            if why := _differs(tree.structure(sent[name]), structure):
                return why
        if not all(bool(leaf.isfinite().all()) for leaf in tree.leaves(dict(sent))):
            return "not finite"
        if type(examples) is not int or examples != declared:
            return "examples"
        if self.loss and float(sent["loss"]["loss"]) < 0:
            return "loss"
        if any(bool((leaf.abs() != 0.5).any()) for leaf in tree.leaves(sent.get("said", {}))):
            return "said"
        return None


def _differs(found: Any, wanted: Any) -> str | None:
    """In what two structures differ."""
    if isinstance(wanted, tuple) or isinstance(found, tuple):
        if not (isinstance(wanted, tuple) and isinstance(found, tuple)):
            return "names"
        shape, dtype = wanted
        return "shape" if found[0] != shape else "type" if found[1] != dtype else None
    if found.keys() != wanted.keys():
        return "names"
    return next((why for k in wanted if (why := _differs(found[k], wanted[k]))), None)


def too_long(updates: Tree, like: Tensor, longest: float = LONGEST) -> Tensor:
    """[clients] Whose stacked update is longer than so many times the median of all.

    Nobody's is where the median is zero: then most of them have not moved.
    """
    length = tree.row_sq_norms(updates, like).sqrt()
    if len(length) < 2:
        return torch.zeros_like(length, dtype=torch.bool)
    median = length.median()
    return (length > longest * median) & (median > 0)
