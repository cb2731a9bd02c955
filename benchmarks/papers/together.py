"""Cells that differ in nothing but seed and partition: their trainings as one program.

Clients of all of them train side by side (:mod:`glocal.engines.lanes`), each cell with a server, a
seed and draws of its own, so that a cell comes to what it would come to by itself, to the tolerance
that engines agree to. On a GPU six cells of ten clients each take little longer than one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from glocal.core.errors import GlocalError
from glocal.experiment.best_runner import AloneRepeats
from glocal.experiment.callbacks import NOBODY
from glocal.experiment.federated_runner import Federated
from glocal.experiment.memory_estimate import lanes
from glocal.experiment.run import Run, assembled
from glocal.experiment.runner import memory_needed, runner_of
from glocal.experiment.setup import Setup
from glocal.training.checkpoint import CheckpointPolicy
from papers.tables import Cell

APART = ("adapt", "tune", "new_test", "repeats")
"""Settings of which a cell that has one is trained by itself."""

Kept = TypeVar("Kept")


def kind_of(cell: Cell) -> str | None:
    """A text that cells which can be trained as one have in common; None: by itself alone."""
    alone = cell.settings.get("baseline") != "none" or any(cell.settings.get(s) for s in APART)
    if cell.kind != "fit" or alone:
        return None
    common = {**cell.settings, "partition": None}
    return replace(cell, group="", row="", seed=0, settings=common).digest


def divided(cells: Sequence[Cell], most: int) -> list[tuple[Cell, ...]]:
    """The cells in their order, each with up to ``most - 1`` others that are like it.

    Checkpoints are of a group: who stops and resumes must divide alike.
    """
    left, groups = list(cells), []
    while left:
        first = left.pop(0)
        kind, others = kind_of(first), []
        if kind is not None:
            others = [cell for cell in left if kind_of(cell) == kind][: most - 1]
        left = [cell for cell in left if cell not in others]
        groups.append((first, *others))
    return groups


def fitted(
    cells: Sequence[Cell],
    make: Callable[[Cell], Setup],
    policy: CheckpointPolicy,
    figures: Callable[[Cell, Setup, Run], Kept],
) -> list[Kept]:
    """The figures of each cell, after all of them were trained as one."""
    method = cells[0].method
    runner = runner_of(method, method)
    assert isinstance(runner, Federated)
    setups = [make(cells[0])]
    need, device = memory_needed(runner, setups[0]), setups[0].fed.x.device
    if (most := lanes(need, device, len(cells))) < len(cells):
        raise GlocalError(f"{len(cells)} of these do not fit into memory: give --lanes {most}.")
    setups += [make(cell) for cell in cells[1:]]
    with setups[0].threads():
        repeats = runner.run_side_by_side(setups, NOBODY, policy)
        kept = []
        for cell, setup, repeat in zip(cells, setups, repeats, strict=True):
            run = assembled(setup, setup.fed, method, [repeat], AloneRepeats.of(setup, [], []))
            kept.append(figures(cell, setup, run))
    return kept
