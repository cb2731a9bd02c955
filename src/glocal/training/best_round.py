"""Early stopping of a training: it ends when validation data has not got better for a while.

What counts is the mean over clients of the metric that counts (ties: the lower loss), as it is
recorded by round. The best round is kept: what the server and the clients had after it. Of a plan
of several stages only the last can end early, since the others are there for its sake.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.types import Tree
from glocal.evaluation.measures import Measure, of_task

if TYPE_CHECKING:
    from glocal.training.loop import Training
    from glocal.training.run_state import Progress


@dataclass(frozen=True)
class BestRound:
    """The best round so far, and what there was after it."""

    round: int
    rank: tuple[float, float]
    """:func:`rank` of its line."""
    since: int = 0
    """How often it was evaluated since without getting better."""
    server: Tree | None = None
    """None where the round is all that is asked for."""
    ids: Tensor | None = None
    states: Tree | None = None
    """What these clients had."""


def rank(measure: Measure, line: Mapping[str, Any]) -> tuple[float, float] | None:
    """What rounds are compared by, the higher the better; none where it was not evaluated."""
    value, loss = line.get(f"val_{measure.name}", math.nan), line.get("val_loss", math.nan)
    return (measure.sign * value, -loss) if math.isfinite(loss) and not math.isnan(value) else None


def noted(training: Training, progress: Progress, line: Mapping[str, Any]) -> None:
    """After a round that was evaluated: is it the best so far?"""
    if progress.stage + 1 < len(training.plan.stages):
        return
    now, best = rank(of_task(training.task), line), progress.best
    if now is None or (best is not None and now <= best.rank):
        if best is not None:
            progress.best = replace(best, since=best.since + 1)
        return
    progress.best = BestRound(progress.round, now)
    if not training.by_client:  # else settings are searched, and the models are not asked for
        ids, states = progress.clients.saved()
        progress.best = replace(progress.best, server=progress.server, ids=ids, states=states)


def is_over(training: Training, progress: Progress) -> bool:
    """Whether there is nothing more to wait for."""
    best, patience = progress.best, training.patience
    return patience is not None and best is not None and best.since >= patience


def at_best(training: Training, progress: Progress) -> Progress:
    """The training as it stood after its best round, with all that was spent on it."""
    best = progress.best
    if best is None or best.server is None or best.round == progress.round:
        return progress
    # What is on disk for checkpoints stays there; this is for whoever evaluates it.
    storage = replace(training.storage, folder=None)
    kept = replace(progress, server=best.server, round=best.round, decision=None)
    kept.clients = replace(training, storage=storage).store(kept)
    assert best.ids is not None
    kept.clients = kept.clients.filled(best.ids, best.states or {})
    return kept


def packed_best(best: BestRound | None) -> tuple[dict[str, Any], Tree]:
    """As facts and trees, for a checkpoint."""
    if best is None:
        return {}, {}
    facts = {"round": best.round, "rank": list(best.rank), "since": best.since}
    if best.server is None:
        return {"best": facts}, {}
    held = {"server": best.server, "ids": best.ids, "states": best.states}
    return {"best": facts}, {"best": held}


def unpacked_best(
    facts: Mapping[str, Any], trees: Mapping[str, Any], device: torch.device
) -> BestRound | None:
    """The inverse of :func:`packed_best`."""
    if "best" not in facts:
        return None
    about, held = facts["best"], trees.get("best")
    value, loss = about["rank"]
    best = BestRound(int(about["round"]), (float(value), float(loss)), int(about["since"]))
    if held is None:
        return best
    states = tree.to(held.get("states", {}), device)
    return replace(best, server=tree.to(held["server"], device), ids=held["ids"], states=states)
