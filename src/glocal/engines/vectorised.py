"""All clients of a cohort as one program: ``torch.func.vmap`` over stacked parameters.

Ragged clients are padded. One that is out of batches is *frozen*: ``where(live, new, old)``. Giving
its padded batches weight zero is not enough, since proximal terms, momentum and control variates
would move it all the same.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.func import vmap

from glocal.core import rng, tree
from glocal.core.errors import ClientError, GlocalError
from glocal.core.types import Carry, Downlink, Params, Tree, Uplink
from glocal.engines.base import (
    WASTE,
    CohortRound,
    PerExample,
    Workload,
    padded_rows,
)
from glocal.engines.batching import Batches, plan
from glocal.engines.compiled import Programs, pays
from glocal.engines.evaluation import BatchedEvaluation, eval_rows
from glocal.engines.poisson_batches import poisson_plan
from glocal.engines.sequential import Sequential, client_message
from glocal.engines.shards import joined, parts_of
from glocal.nn import client_convolutions
from glocal.nn.client_convolutions import ClientConvolutions, Layer
from glocal.nn.precision import arithmetic
from glocal.nn.task import Task
from glocal.slots.client import Local

MEMORY = 4 << 30
"""Bytes of stacked models a cohort may take at once on a CPU; larger cohorts run in chunks."""

MIN_ROWS = 20
"""Examples of a client from which models with convolutions are evaluated one by one on a CPU: fewer
cost less together than in so many calls (docs/measurements/speed.md)."""


@dataclass(frozen=True)
class Vectorised:
    """One program for the whole cohort, or for ``chunk`` clients at a time."""

    chunk: int | None = None
    compiled: bool | None = False
    """Whether steps are compiled; None: where the run is long enough to pay for it."""
    short: Sequential | None = None
    """What trains where steps are not compiled, and evaluates, if not this one."""
    in_blocks: bool = False
    """Whether to train in blocks of fixed shapes also where nothing is compiled or captured."""
    programs: Programs = field(default_factory=Programs, compare=False, repr=False)
    evaluation: BatchedEvaluation = field(
        default_factory=BatchedEvaluation, compare=False, repr=False
    )
    _executed: list[str] = field(default_factory=list, compare=False, repr=False)
    _ways: dict[Layer, str] = field(default_factory=dict, compare=False, repr=False)
    """How convolutions were computed where clients' kernels are their own."""

    @property
    def name(self) -> str:
        """As in ``engine="…"``; of what is compiled in long runs only, what it is in short ones."""
        if self.short is not None:
            return self.short.name
        return "compiled" if self.compiled else "vectorised"

    @property
    def executed(self) -> str:
        """What trained the last round: ``compiled``, ``vectorised`` or ``sequential``.

        On a GPU it also says how many of the convolutions were tiled.
        """
        name = self._executed[-1] if self._executed else self.name
        if not self._ways:
            return name
        tiled = sum(way == "tiled" for way in self._ways.values())
        return f"{name}, {tiled} of {len(self._ways)} convolutions tiled"

    def _note(self, executed: str) -> None:
        self._executed[:] = [executed]

    def compiles(self, cohort: CohortRound) -> bool:
        """Whether steps of the run that a round belongs to are compiled."""
        if self.compiled is not None:
            return self.compiled
        return pays(_workload(cohort).worth, cohort.ids.device, cohort.convolutional)

    def round(self, cohort: CohortRound) -> tuple[Uplink, Tree]:
        """The cohort's round."""
        with arithmetic(cohort.task.precision), self._convolutions(cohort):
            return self._rounds(cohort)

    def _convolutions(self, cohort: CohortRound) -> AbstractContextManager[object]:
        """While it lasts, convolutions are computed by the rule, where there is one."""
        device = cohort.ids.device
        if device.type not in client_convolutions.DEVICES or not cohort.convolutional:
            return nullcontext()
        if not client_convolutions.works_on(device):
            return nullcontext()
        return ClientConvolutions(cohort.task.precision, self._ways)

    def _rounds(self, cohort: CohortRound) -> tuple[Uplink, Tree]:
        short = self._short_for(cohort)
        if short is not None and not self.compiles(cohort):
            self._note(short.name)
            return short.round(cohort)
        size, clients = self.chunk or _chunk(cohort), len(cohort.ids)
        if clients <= size:
            return self._round(cohort)
        return joined(cohort, [self._round(part) for part in parts_of(cohort, size)])

    def _short_for(self, cohort: CohortRound) -> Sequential | None:
        """What trains it where steps are not compiled, if not this one.

        Where the rule is left to choose, that is also so of a method's own convolutions.
        """
        by_rule = self.compiled is None and cohort.ids.device.type == "cpu"
        return Sequential() if by_rule and cohort.convolutional else self.short

    def _round(self, cohort: CohortRound) -> tuple[Uplink, Tree]:
        stage = ["start"]
        try:
            with torch.no_grad():
                return self._train(cohort, stage)
        except GlocalError:
            raise
        except Exception as error:  # whatever a method or a model raises
            # vmap cannot say whose data it was: the plain loop can.
            Sequential().round(cohort)
            everyone = f"{cohort.fed.names[int(cohort.ids[0])]} and the rest of its cohort"
            message = client_message(everyone, stage[0], error)
            raise ClientError(
                f"{message} (only when vectorised: engine='sequential' runs it)"
            ) from error

    def candidates(
        self, task: Task, local: Local, down: Downlink, states: Tree, clients: int
    ) -> dict[str, Params]:
        """All clients' candidates at once."""
        if self.short is not None:
            return self.short.candidates(task, local, down, states, clients)
        with torch.no_grad():
            # An empty state has nothing to map over; the counter does.
            stacked: dict[str, Params] = vmap(
                lambda client, _: local.candidates(task, down, client)
            )(states, torch.arange(clients))
        return stacked

    def evaluate(
        self, metrics: PerExample, models: Params, x: Tensor, y: Tensor, rows: Tensor
    ) -> dict[str, Tensor]:
        """All models at once, each on its own rows; or one by one, where that is faster."""
        one_by_one = self.short or (Sequential() if _grouped(models, rows) else None)
        with torch.no_grad(), arithmetic("single"):
            return (one_by_one or self.evaluation).evaluate(metrics, models, x, y, rows)

    def _train(self, cohort: CohortRound, stage: list[str]) -> tuple[Uplink, Tree]:
        loss = None
        if cohort.needs_loss:
            stage[0] = "loss of the received model"
            loss = _received_loss(cohort)
        stage[0] = "training"
        workload, device = _workload(cohort), cohort.ids.device
        compiles, result = self.compiles(cohort), None
        # Of Poisson samples no shapes are known beforehand, and their noise is drawn on the host.
        if (compiles or self.in_blocks or device.type == "cuda") and not cohort.local.poisson:
            result = self.programs.round(
                cohort,
                workload,
                compiles=compiles,
                any_size=bool(self.compiled),
                widest=_chunk(cohort),
            )
        if result is None and (short := self._short_for(cohort)) is not None:
            self._note(short.name)
            return short.round(cohort)
        self._note("compiled" if result and self.programs.compiled else "vectorised")
        uplink, states = result or _stepwise(cohort, stage)
        return replace(uplink, loss=loss), states


def _workload(cohort: CohortRound) -> Workload:
    """The workload of the training, or of a single round."""
    return cohort.workload or Workload(steps=0, cohort=len(cohort.ids))


def _chunk(cohort: CohortRound) -> int:
    """Clients whose models, gradients and optimiser state fit the bound."""
    memory = _memory(cohort.ids.device) // 2
    models = 6 + (cohort.local.batch_size if cohort.local.poisson else 0)  # an example's gradient
    return max(1, memory // (models * 4 * max(1, cohort.task.size)))


def _memory(device: torch.device) -> int:
    """Bytes that it has, not those that are free: the same run must be divided the same way."""
    if device.type != "cuda":
        return 2 * MEMORY
    return int(torch.cuda.get_device_properties(device).total_memory)


def _stepwise(cohort: CohortRound, stage: list[str]) -> tuple[Uplink, Tree]:
    """The client's half of a round, every step of all clients as one call."""
    task, local, fed = cohort.task, cohort.local, cohort.fed
    keys, down, dim = cohort.keys, cohort.received(), cohort.down_dim
    stage[0] = "start"
    carry: Carry = vmap(lambda d, s, _: local.start(task, d, s), (dim, 0, 0))(
        down, cohort.states, keys
    )
    for p, phase in enumerate(local.phases):
        phase_keys = rng.fold(keys, p)
        draw = poisson_plan if local.poisson else plan
        where, how = (fed.train, cohort.ids, phase_keys), (phase.epochs, local.batch_size)
        batches = draw(*where, *how, phase.steps).first(cohort.part)
        times = torch.arange(int(batches.steps.max()), device=keys.device)
        step_keys = rng.fold(rng.fold(phase_keys, -2).unsqueeze(-1), times)
        step = vmap(lambda *inputs, take=phase.step: take(task, *inputs), (dim, 0, 0, 0))
        active = _ActiveClients(batches, step_keys, carry, down, stacked=dim is not None)
        for t in range(len(times)):
            stage[0] = f"{phase.name}, step {t}"
            active.set_aside(t)
            rows = active.rows[:, t]
            batch = fed.batch(rows, active.weight[:, t])
            active.advance(step(active.down, active.carry, batch, active.keys[:, t]), t)
        carry = active.all_clients()
    stage[0] = "finish"
    update, states, extra = vmap(lambda d, c, _: local.finish(task, d, c), (dim, 0, 0))(
        down, carry, keys
    )
    start = fed.train.start.to(keys.device)
    n = start[cohort.ids + 1] - start[cohort.ids]
    return Uplink(ids=cohort.ids, n=n, update=update, loss=None, extra=extra), states


class _ActiveClients:
    """The clients that still have batches, stacked; the finished ones frozen or set aside."""

    def __init__(
        self, batches: Batches, keys: Tensor, carry: Carry, down: Downlink, *, stacked: bool
    ) -> None:
        self.steps = batches.steps
        self.places = torch.arange(len(self.steps))
        self.rows, self.weight, self.keys = batches.rows, batches.weight, keys
        self.carry = carry
        self.down, self.stacked = down, stacked
        self.finished: list[tuple[Tensor, Carry]] = []
        self.shortest = int(self.steps.min())

    def set_aside(self, t: int) -> None:
        """Take the finished out of the stack once they cost more time than that takes."""
        if t < self.shortest:
            return
        live = self.steps[self.places] > t
        if int(live.sum()) * (1 + WASTE) > len(self.places):
            return
        mask = live.to(self.rows.device)
        self.finished.append((self.places[~live], tree.row(self.carry, ~mask)))
        self.places, self.carry = self.places[live], tree.row(self.carry, mask)
        self.rows, self.weight, self.keys = self.rows[mask], self.weight[mask], self.keys[mask]
        if self.stacked:
            self.down = tree.row(self.down, mask)
        self.shortest = int(self.steps[self.places].min())

    def advance(self, new: Carry, t: int) -> None:
        """Take the step for those that had a batch; freeze the others."""
        if t < self.shortest:
            self.carry = new
        else:
            live = (self.steps[self.places] > t).to(self.rows.device)
            self.carry = tree.where(live, new, self.carry)

    def all_clients(self) -> Carry:
        """All clients again, in the cohort's order."""
        parts = [*self.finished, (self.places, self.carry)]
        order = torch.cat([places for places, _ in parts]).argsort()
        joined = tree.cat([carry for _, carry in parts])
        return joined if len(parts) == 1 else tree.row(joined, order)


def _grouped(models: Params, rows: Tensor) -> bool:
    """Whether stacked models have convolutions that a CPU would compute slowly, as grouped ones."""
    kernels = any(leaf.dim() >= 5 for leaf in tree.leaves(models))
    return rows.device.type == "cpu" and kernels and rows.shape[1] >= MIN_ROWS


def _received_loss(cohort: CohortRound) -> Tensor:
    task, local, down, fed = cohort.task, cohort.local, cohort.received(), cohort.fed

    def losses(down: Downlink, client: Tree, x: Tensor, y: Tensor) -> Tensor:
        return task.losses(task.predict(local.received(task, down, client), x), y)

    rows, real = padded_rows(fed.train, cohort.ids)
    pieces = torch.split(rows, eval_rows(len(rows), fed.y), dim=1)
    of_all = vmap(losses, (cohort.down_dim, 0, 0, 0))
    each = torch.cat([of_all(down, cohort.states, fed.x[r], fed.y_train[r]) for r in pieces], dim=1)
    weight = real * fed.label_counts[rows]
    return (each * weight).sum(1) / weight.sum(1)
