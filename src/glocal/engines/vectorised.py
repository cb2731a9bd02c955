"""All clients of a cohort as one program: ``torch.func.vmap`` over stacked parameters.

Ragged clients are padded. One that is out of batches is *frozen*: ``where(live, new, old)``. Giving
its padded batches weight zero is not enough, since proximal terms, momentum and control variates
would move it all the same.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from glocal.core import rng, tree
from glocal.core.errors import ClientError, GlocalError
from glocal.core.types import Carry, Downlink, Params, Tree, Uplink
from glocal.engines.base import EVAL_BATCH, CohortRound, PerExample, Workload, padded_rows
from glocal.engines.batching import Batches, plan
from glocal.engines.compiled.blocks import WASTE
from glocal.engines.compiled.inductor import pays
from glocal.engines.compiled.program import Program
from glocal.engines.evaluation import BatchedEvaluation
from glocal.engines.sequential import Sequential, client_message
from glocal.nn.task import Task
from glocal.slots.client import Local, Phase

MEMORY = 4 << 30
"""Bytes of stacked models a cohort may take at once on a CPU; larger cohorts run in chunks."""

KEPT = 4
"""Programs that stay: each has buffers for a cohort."""


@dataclass(frozen=True)
class Vectorised:
    """One program for the whole cohort, or for ``chunk`` clients at a time."""

    chunk: int | None = None
    compiled: bool | None = False
    """Whether steps are compiled; None: where the run is long enough to pay for it."""
    short: Sequential | None = None
    """What trains where steps are not compiled, and looks at models, if not this one."""
    in_blocks: bool = False
    """Train in blocks of fixed shapes also where nothing is compiled or captured."""
    programs: OrderedDict[Any, Program] = field(
        default_factory=OrderedDict, compare=False, repr=False
    )
    """Those of the last few trainings, kept from round to round."""
    evaluation: BatchedEvaluation = field(
        default_factory=BatchedEvaluation, compare=False, repr=False
    )

    @property
    def name(self) -> str:
        """As in ``engine="…"``; of what is compiled in long runs only, what it is in short ones."""
        if self.short is not None:
            return self.short.name
        return "compiled" if self.compiled else "in blocks" if self.in_blocks else "vectorised"

    def compiles(self, workload: Workload, device: torch.device) -> bool:
        """Whether steps of such a run are compiled."""
        return pays(workload.steps, device) if self.compiled is None else self.compiled

    def round(self, work: CohortRound) -> tuple[Uplink, Tree]:
        """The cohort's round."""
        if self.short is not None and not self.compiles(_ahead(work), work.ids.device):
            return self.short.round(work)
        size = self.chunk or _chunk(work)
        if len(work.ids) <= size:
            return self._round(work)
        parts = [
            self._round(work.subset(slice(a, a + size))) for a in range(0, len(work.ids), size)
        ]
        sent = [uplink for uplink, _ in parts]
        uplink = Uplink(
            ids=work.ids,
            n=torch.cat([u.n for u in sent]),
            update=tree.cat([u.update for u in sent]),
            loss=torch.cat([u.loss for u in sent if u.loss is not None])
            if work.needs_loss
            else None,
            extra=tree.cat([u.extra for u in sent]),
        )
        return uplink, tree.cat([states for _, states in parts])

    def _round(self, work: CohortRound) -> tuple[Uplink, Tree]:
        stage = ["start"]
        try:
            with torch.no_grad():
                return self._cohort(work, stage)
        except GlocalError:
            raise
        except Exception as error:  # whatever a method or a model raises
            # vmap cannot say whose data it was: the plain loop can.
            Sequential().round(work)
            everyone = f"{work.fed.names[int(work.ids[0])]} and the rest of its cohort"
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

        def one(client: Tree, _: Tensor) -> dict[str, Params]:
            return local.candidates(task, down, client)

        with torch.no_grad():
            # An empty state has nothing to map over; the counter does.
            stacked: dict[str, Params] = vmap(one)(states, torch.arange(clients))
        return stacked

    def evaluate(
        self, look: PerExample, models: Params, x: Tensor, y: Tensor, rows: Tensor
    ) -> dict[str, Tensor]:
        """All models at once, each on its own rows, in pieces."""
        if self.short is not None:
            return self.short.evaluate(look, models, x, y, rows)
        with torch.no_grad():
            return self.evaluation.evaluate(look, models, x, y, rows)

    def _cohort(self, work: CohortRound, stage: list[str]) -> tuple[Uplink, Tree]:
        loss = None
        if work.needs_loss:
            stage[0] = "loss of the received model"
            loss = _received_loss(work)
        stage[0] = "training"
        program = self._program(work)
        made = None if program is None else program.round(work)
        if made is None and self.short is not None:
            return self.short.round(work)
        uplink, states = made or _called(work, stage)
        return replace(uplink, loss=loss), states

    def _program(self, work: CohortRound) -> Program | None:
        """The training's program, made at its first round; None: steps are called one by one."""
        workload, device = _ahead(work), work.ids.device
        compiles = self.compiles(workload, device)
        if device.type != "cuda" and not (compiles or self.in_blocks):
            return None
        # Objects by identity: the program holds them, so no other can have their place.
        key = (id(work.local), id(work.task), id(work.fed), workload, compiles)
        if key not in self.programs:
            while len(self.programs) >= KEPT:
                self.programs.popitem(last=False)
            self.programs[key] = Program(
                work, workload, compiles, _chunk(work), bool(self.compiled)
            )
        self.programs.move_to_end(key)
        return self.programs[key]


def _ahead(work: CohortRound) -> Workload:
    """What is known of the run; of a round by itself, that it is one."""
    return work.workload or Workload(steps=0, cohort=len(work.ids))


def _chunk(work: CohortRound) -> int:
    """Clients whose models, gradients and optimiser state fit the bound."""
    room = MEMORY
    if work.ids.device.type == "cuda":
        # Of all the card has, not of what is free: the same run must be cut the same way.
        room = torch.cuda.get_device_properties(work.ids.device).total_memory // 2
    return max(1, room // (6 * 4 * max(1, work.task.size)))


def _called(work: CohortRound, stage: list[str]) -> tuple[Uplink, Tree]:
    """The client's half of a round, every step of all clients as one call."""
    task, local, fed, down = work.task, work.local, work.fed, work.down
    keys = work.keys
    stage[0] = "start"
    carry: Carry = vmap(lambda client, _: local.start(task, down, client))(work.states, keys)
    for p, phase in enumerate(local.phases):
        phase_keys = rng.fold(keys, p)
        batches = plan(fed.train, work.ids, phase_keys, phase.epochs, local.batch_size, phase.steps)
        times = torch.arange(batches.rows.shape[1], device=keys.device)
        step_keys = rng.fold(rng.fold(phase_keys, -2).unsqueeze(-1), times)
        step = vmap(_bound(task, down, phase))
        racing = _Racing(batches, step_keys, carry)
        for t in range(len(times)):
            stage[0] = f"{phase.name}, step {t}"
            racing.retire(t)
            rows = racing.rows[:, t]
            batch = {"x": fed.x[rows], "y": fed.y_train[rows], "weight": racing.weight[:, t]}
            racing.advance(step(racing.carry, batch, racing.keys[:, t]), t)
        carry = racing.everybody()
    stage[0] = "finish"
    update, states, extra = vmap(lambda c, _: local.finish(task, down, c))(carry, keys)
    start = fed.train.start.to(keys.device)
    n = start[work.ids + 1] - start[work.ids]
    return Uplink(ids=work.ids, n=n, update=update, loss=None, extra=extra), states


class _Racing:
    """The clients that still have batches, stacked; the finished ones frozen or set aside."""

    def __init__(self, batches: Batches, keys: Tensor, carry: Carry) -> None:
        self.steps = batches.steps
        self.who = torch.arange(len(self.steps))
        self.rows, self.weight, self.keys = batches.rows, batches.weight, keys
        self.carry = carry
        self.finished: list[tuple[Tensor, Carry]] = []
        self.shortest = int(self.steps.min())

    def retire(self, t: int) -> None:
        """Set the finished aside once they cost more time than that takes."""
        if t < self.shortest:
            return
        live = self.steps[self.who] > t
        if int(live.sum()) * (1 + WASTE) > len(self.who):
            return
        here = live.to(self.rows.device)
        self.finished.append((self.who[~live], tree.row(self.carry, ~here)))
        self.who, self.carry = self.who[live], tree.row(self.carry, here)
        self.rows, self.weight, self.keys = self.rows[here], self.weight[here], self.keys[here]
        self.shortest = int(self.steps[self.who].min())

    def advance(self, new: Carry, t: int) -> None:
        """Take the step for those that had a batch; freeze the others."""
        if t < self.shortest:
            self.carry = new
        else:
            live = (self.steps[self.who] > t).to(self.rows.device)
            self.carry = tree.where(live, new, self.carry)

    def everybody(self) -> Carry:
        """All clients again, in the cohort's order."""
        parts = [*self.finished, (self.who, self.carry)]
        order = torch.cat([who for who, _ in parts]).argsort()
        joined = tree.cat([carry for _, carry in parts])
        return joined if len(parts) == 1 else tree.row(joined, order)


def _bound(task: Task, down: Downlink, phase: Phase):  # type: ignore[no-untyped-def]
    def step(carry: Carry, batch: dict[str, Tensor], key: Tensor) -> Carry:
        return phase.step(task, down, carry, batch, key)

    return step


def _received_loss(work: CohortRound) -> Tensor:
    task, local, down, fed = work.task, work.local, work.down, work.fed

    def losses(client: Tree, x: Tensor, y: Tensor) -> Tensor:
        return task.losses(task.predict(local.received(task, down, client), x), y)

    rows, real = padded_rows(fed.train, work.ids)
    piece = max(1, EVAL_BATCH // max(1, len(rows) // 8))
    each = torch.cat(
        [
            vmap(losses)(work.states, fed.x[r], fed.y_train[r])
            for r in torch.split(rows, piece, dim=1)
        ],
        1,
    )
    return (each * real).sum(1) / real.sum(1)
