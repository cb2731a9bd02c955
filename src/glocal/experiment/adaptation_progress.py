"""Where clients stand between two epochs of their adaptation, as a checkpoint has it.

They adapt in blocks, by one technique after another. Of blocks that are done the outcome is known
and their models are forgotten; the block that adapts has all that its last epoch left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.core.types import Params, Tree
from glocal.evaluation.evaluate import Outcome
from glocal.training.checkpoint_files import Checkpoint
from glocal.training.client_state.store import ClientStore

OF_CLIENTS = ("val_score", "val_loss", "best", "moved", "gradients")
"""The tensors of a :class:`Standing` that have a number for each client."""


@dataclass
class Standing:
    """What is known after some blocks and epochs."""

    val_score: Tensor
    """[clients] that of each client's best technique so far, on validation data."""
    val_loss: Tensor
    best: Tensor
    """[clients] which technique that is."""
    moved: Tensor
    """[clients] whether it left the model that the client was given."""
    gradients: Tensor
    """[clients] how many it computed."""
    models: ClientStore
    """Those of each client's best technique, where they are to be kept."""
    union: Params | None = None
    """The Fisher information of all participants' data, where a technique asks for it."""
    parts: dict[str, list[Outcome]] = field(default_factory=dict)
    """By technique, the outcomes of its blocks that are done."""

    @classmethod
    def at_first(cls, clients: int, device: torch.device) -> Standing:
        """Nobody has adapted yet."""
        return cls(
            torch.full((clients,), -torch.inf),
            torch.full((clients,), torch.inf),
            torch.zeros(clients, dtype=torch.int64),
            torch.zeros(clients, dtype=torch.bool),
            torch.zeros(clients, dtype=torch.int64),
            ClientStore(clients, device),
        )

    @property
    def blocks(self) -> int:
        """How many are done, of all techniques together."""
        return sum(len(parts) for parts in self.parts.values())


def packed(standing: Standing, block: Tree) -> tuple[dict[str, Any], Tree]:
    """Where they stand as facts and trees; ``block`` is what the last epoch of one left."""
    facts: dict[str, Any] = {}
    trees: Tree = {
        "clients": {name: getattr(standing, name) for name in OF_CLIENTS},
        "models": standing.models.packed(0),
        "outcomes": {},
        "block": block,
    }
    for name, parts in standing.parts.items():
        both = [_packed_outcome(part) for part in parts]
        facts[name] = [of_block for of_block, _ in both]
        trees["outcomes"][name] = {f"{b}": of_block for b, (_, of_block) in enumerate(both)}
    if standing.union is not None:
        trees["union"] = standing.union
    return {"outcomes": facts}, trees


def unpacked(checkpoint: Checkpoint, device: torch.device) -> tuple[Standing, Tree]:
    """The inverse of :func:`packed`."""
    trees = checkpoint.trees
    try:
        figures: dict[str, Any] = {name: trees["clients"][name] for name in OF_CLIENTS}
        models = ClientStore(len(figures["best"]), device)
        models.filled(trees["models"]["ids"], trees["models"]["states"])
        parts = {
            name: [
                _unpacked_outcome(facts, trees["outcomes"][name][f"{b}"])
                for b, facts in enumerate(of_technique)
            ]
            for name, of_technique in checkpoint.facts["outcomes"].items()
        }
        union = tree.to(trees["union"], device) if "union" in trees else None
        standing = Standing(**figures, models=models, union=union, parts=parts)
        return standing, tree.to(trees["block"], device)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise GlocalError(
            f"checkpoint {checkpoint.number} is none of an adaptation ({error}): remove its "
            "folder, and clients adapt again."
        ) from error


def _packed_outcome(outcome: Outcome) -> tuple[dict[str, Any], Tree]:
    names = ("metrics", "chosen", "metric", "lower", "constant")
    own, values = outcome.own, outcome.values
    trees: Tree = {}
    if values is not None:
        trees["values"] = _joined(values)
    if values is None or any(a is not b for a, b in zip(own, values, strict=True)):
        trees["own"] = _joined(own)  # of numbers, both are the same
    if outcome.pool is not None:
        trees["pool"] = {"pool": outcome.pool}
    return {name: getattr(outcome, name) for name in names}, trees


def _unpacked_outcome(facts: dict[str, Any], trees: Tree) -> Outcome:
    values = _divided(trees["values"]) if "values" in trees else None
    own = _divided(trees["own"]) if "own" in trees else list(values or ())
    pool = trees["pool"]["pool"] if "pool" in trees else None
    return Outcome(**facts, own=own, values=values, pool=pool)


def _joined(of_clients: Sequence[Tensor]) -> Tree:
    """As one tensor: a file of a tensor for each of many clients has a header that is too long."""
    lengths = torch.tensor([len(each) for each in of_clients])
    return {"all": torch.cat(list(of_clients)), "lengths": lengths}


def _divided(joined: Tree) -> list[Tensor]:
    return list(torch.split(joined["all"], joined["lengths"].tolist()))
