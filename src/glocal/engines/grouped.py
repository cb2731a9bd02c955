"""Clients with different architectures: those with the same one are trained as a group.

A cohort is divided by architecture (:mod:`glocal.nn.architectures`), each group goes through an
engine of its own with the task of its architecture, and what they send and keep is put back into
the order of the cohort. So where engines are vectorised, each group is one program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.core.types import Downlink, Params, Tree, Uplink
from glocal.engines.base import CohortRound, Engine, PerExample, Workload
from glocal.engines.shards import joined
from glocal.nn.architectures import Architectures, Packed
from glocal.nn.task import Task
from glocal.slots.client import Local


@dataclass(frozen=True)
class Grouped:
    """An engine for each architecture, by its number."""

    engines: tuple[Engine, ...]

    @property
    def name(self) -> str:
        """Of all of them."""
        return "|".join(dict.fromkeys(engine.name for engine in self.engines))

    @property
    def executed(self) -> str:
        """What trained the last round."""
        return "|".join(dict.fromkeys(engine.executed for engine in self.engines))

    def round(self, cohort: CohortRound) -> tuple[Uplink, Tree]:
        """Group by group, in the cohort's order again."""
        task, parts, order = cohort.task, [], []
        assert isinstance(task, Architectures)
        for number, places in _groups(task, cohort.ids):
            share = float((task.of_client == number).float().mean())
            work = replace(
                cohort.subset(places),
                task=task.parts[number],
                workload=cohort.workload and _of_group(cohort.workload, share),
            )
            parts.append(self.engines[number].round(work))
            order.append(places)
        grouped = torch.cat(order)
        uplink, states = joined(replace(cohort, ids=cohort.ids[grouped]), parts)
        again = grouped.argsort()
        return uplink.subset(again), tree.row(states, again)

    def candidates(
        self, task: Task, local: Local, down: Downlink, states: Tree, clients: int
    ) -> dict[str, Params]:
        """All at once: packed parameters of all architectures are alike."""
        return self.engines[0].candidates(task, local, down, states, clients)

    def evaluate(
        self, metrics: PerExample, models: Params, x: Tensor, y: Tensor, rows: Tensor
    ) -> dict[str, Tensor]:
        """Group by group; ``metrics`` is of the task of these clients (``task.of_clients``)."""
        task = getattr(metrics, "__self__", None)
        if isinstance(task, Packed):
            return self.engines[task.number].evaluate(metrics, models, x, y, rows)
        if not isinstance(task, Architectures) or task.ids is None:
            raise GlocalError(
                "clients have different models here, and this is not said of any one's: leave it "
                "out, or give all clients one model."
            )
        parts, order = [], []
        for number, places in _groups(task, task.ids):
            of_group: PerExample = getattr(task.parts[number], metrics.__name__)
            some = (tree.row(models, places), x, y, rows[places])
            parts.append(self.engines[number].evaluate(of_group, *some))
            order.append(places)
        return tree.row(tree.cat(parts), torch.cat(order).argsort())


def _groups(task: Architectures, ids: Tensor) -> Iterator[tuple[int, Tensor]]:
    """The architectures that some clients have, and where among ``ids`` those clients are."""
    numbers = task.numbers(ids)
    for number in sorted(set(numbers.tolist())):
        yield number, (numbers == number).nonzero().flatten().to(ids.device)


def _of_group(workload: Workload, share: float) -> Workload:
    """What is known of a training beforehand, of the clients with one architecture."""
    clients = max(1, round(workload.cohort * share))
    turns = tuple(max(1, round(each * share)) for each in workload.turns)
    return replace(workload, cohort=clients, turns=turns, varies=True)
