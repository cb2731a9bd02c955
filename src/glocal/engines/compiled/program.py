"""The clients' half of a round as programs of fixed shapes, kept from round to round.

Clients are divided into blocks (:mod:`glocal.engines.compiled.blocks`), and what is trained lies in
buffers that a step changes in place. The step is compiled where that pays. On a CPU a block that
fits a core's cache is trained by one thread from its first step to its last; with convolutions it
is one client, as those of several are computed one by one, and slower. On a GPU a step is captured
as a CUDA graph, one for each number of blocks that still train, with the blocks on streams of their
own; what comes before and after the steps is captured too. So a step costs one launch.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from threading import Barrier

import torch
from torch import Tensor
from torch.func import vmap

from glocal.core import rng, tree
from glocal.core.types import Batch, Carry, Downlink, Tree, Uplink
from glocal.engines.base import CohortRound, Workload
from glocal.engines.batching import BatchIndex, PlanSize, plan
from glocal.engines.compiled.blocks import Layout, cache_width, lane_width, width
from glocal.engines.compiled.cuda_graphs import Captured, record
from glocal.engines.compiled.inductor import MAX_OPERATIONS, InPlace, compile_step
from glocal.nn.task import Task
from glocal.slots.client import Phase

KEYS = 4
"""Where the clients' keys are among the inputs of a step, from the end."""

new_stream = torch.cuda.Stream


@dataclass
class _Block:
    """The buffers of ``width`` clients that train together."""

    carry: Carry
    down: Downlink
    """What these clients receive; where all receive the same, it is that of all blocks."""
    plans: list[list[Tensor]]
    """For each phase: rows, weights [steps, width, batch], keys [steps, width], steps [width]."""
    clock: Tensor
    """Which step the block is at; on a GPU all blocks share one."""
    place: Tensor
    """Where a step's mini-batches are in the plan that it is given: on a GPU at the clock, on a CPU
    first, since it is given its own part of the plan. So programs are the same for all lengths."""
    by_step: dict[int, list[list[Tensor]]] = field(default_factory=dict)
    """For each phase that was trained on a CPU: what each of its steps is called with."""


class Program:
    """All rounds of one training: one client half on one federation."""

    def __init__(
        self, cohort: CohortRound, workload: Workload, compiles: bool, widest: int, any_size: bool
    ) -> None:
        self.task, self.local, self.fed = cohort.task, cohort.local, cohort.fed
        self.device = cohort.ids.device
        self.compiles = compiles
        self.max_operations = math.inf if any_size else MAX_OPERATIONS
        self.phases = self.local.phases
        self.counts, batch = self.fed.train.counts().cpu(), self.local.batch_size
        self.sizes = [PlanSize.of(self.counts, p.epochs, p.steps, batch) for p in self.phases]
        self.down_dim = cohort.down_dim
        first = cohort.subset(slice(1))
        self.down = tree.map(torch.clone, first.received())
        self.template = self._started(first.states, first.keys, self.down)
        """What one client trains, for its shapes."""
        longest = max(range(len(self.phases)), key=lambda p: self.sizes[p].steps)
        wide = width(self.fed.train, self.phases[longest], self.sizes[longest].batch, workload)
        self.single_thread = False
        """Whether a block is for one thread, and not for all of them."""
        if self.device.type == "cpu":
            size = sum(x.nbytes for x in tree.leaves(self.template))
            if cohort.convolutional:
                wide, self.single_thread = 1, workload.cohort > 1
            elif cohort.lanes is None:
                fits = cache_width(workload.cohort, size)
                self.single_thread = fits < workload.cohort
                wide = min(wide, fits)
            else:  # the same in all turns, which then have one program
                fewest = min(workload.turns, default=workload.cohort)
                wide, self.single_thread = min(lane_width(size), fewest), True
        self.width = min(wide, widest)
        self.one_size = bool((self.counts == self.counts[0]).all())
        self.blocks: list[_Block] = []
        self.carry: Carry = {}
        """What all blocks train, one after another in memory."""
        self.buffers: set[int] = set()
        """Where the buffers are in memory."""
        self.steps: dict[int, InPlace] = {}
        self.compiled: set[int] = set()
        """Phases whose step is compiled."""
        self.keyless: set[int] = set()
        """Phases whose step is known to draw nothing."""
        self.layouts: dict[int, Layout] = {}
        """Those of cohorts of so many clients, where all clients have as many examples."""
        self.refused = False
        """Whether a step could not be compiled on a CPU: then blocks cost more than they gain."""

    def round(self, cohort: CohortRound) -> tuple[Uplink, Tree] | None:
        """The cohort's updates and new states; None: what makes blocks worth it cannot be had."""
        if self.refused:
            return None
        part = cohort.part
        layout = self.layouts.get(len(cohort.ids)) if part is None else None
        if layout is None:
            layout = Layout.of(self.counts[cohort.ids.cpu()], self.width, self.device, part)
            if self.one_size and part is None:
                self.layouts[len(cohort.ids)] = layout
        ids, keys, states, down = cohort.ids, cohort.keys, cohort.states, cohort.received()
        if layout.moved:
            ids, keys = ids[layout.order], keys[layout.order]
            states = tree.row(states, layout.order)
            if cohort.lanes is not None:
                down = tree.row(down, layout.order)
        if len(self.blocks) < layout.blocks:
            self._allocate(layout.blocks)
        received = tree.map(lambda _, leaf: leaf, self.down, down)  # in the buffers' order
        buffers = self._filled(self.down, len(ids))
        torch._foreach_copy_(tree.leaves(buffers), tree.leaves(received))
        # How many places hold a client, as a tensor: a graph reads it.
        clients = torch.tensor(len(cohort.ids), device=self.device)
        inputs = {"ids": ids, "keys": keys, "clients": clients}
        if layout.part is not None:
            inputs["part"] = layout.part
        self.start({**inputs, "states": states})
        for p in range(len(self.phases)):
            self.plan[p](inputs)
            if not self._train(p, layout):
                return None
        sent = self.finish(inputs)
        if layout.moved:
            update, states, extra = (tree.row(part, layout.places) for part in sent)
        else:
            update, states, extra = (tree.map(self._owned, part) for part in sent)
        n = self.fed.train.start[cohort.ids + 1] - self.fed.train.start[cohort.ids]
        return Uplink(ids=cohort.ids, n=n, update=update, loss=None, extra=extra), states

    def _owned(self, sent: Tensor) -> Tensor:
        """A copy of what the next round overwrites: a graph's outputs, and what is in buffers."""
        buffered = sent.untyped_storage().data_ptr() in self.buffers
        return sent.clone() if buffered or self.device.type == "cuda" else sent

    def _allocate(self, blocks: int) -> None:
        """Make buffers for so many blocks; the old ones are dropped with what was captured."""
        self.carry = tree.map(
            lambda x: x.new_zeros((blocks * self.width, *x.shape[1:])), self.template
        )
        if self.down_dim is not None:
            self.down = tree.map(
                lambda x: x.new_zeros((blocks * self.width, *x.shape[1:])), self.down
            )
        clock = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.blocks = []
        for b in range(blocks):
            chosen = slice(b * self.width, (b + 1) * self.width)
            block = _Block(
                tree.row(self.carry, chosen),
                self.down if self.down_dim is None else tree.row(self.down, chosen),
                [self._empty_plan(size) for size in self.sizes],
                clock if self.device.type == "cuda" else clock.clone(),
                clock if self.device.type == "cuda" else torch.zeros_like(clock),
            )
            self.blocks.append(block)
        leaves = [*tree.leaves(self.down), *tree.leaves(self.carry)]
        self.buffers = {leaf.untyped_storage().data_ptr() for leaf in leaves}
        self.graphs: dict[tuple[int, int], Callable[[], None]] = {}
        self.start = Captured(self._start, self.device)
        # Draws are numpy's on a CPU, which tracing does not see.
        planners = (self._planner(p) for p in range(len(self.phases)))
        self.plan = [Captured(planner, self.device, traceable=False) for planner in planners]
        self.finish = Captured(self._finish, self.device)

    def _empty_plan(self, size: PlanSize) -> list[Tensor]:
        shape = (size.steps, self.width, size.batch)
        rows, keys, steps = (
            torch.zeros(part, dtype=torch.int64, device=self.device)
            for part in (shape, shape[:2], shape[1:2])
        )
        return [rows, torch.zeros(shape, device=self.device), keys, steps]

    def _filled(self, down: Downlink, clients: int) -> Downlink:
        """The part of a downlink's buffers that so many clients fill."""
        return down if self.down_dim is None else tree.row(down, slice(clients))

    def _started(self, states: Tree, keys: Tensor, down: Downlink) -> Carry:
        def start(down: Downlink, client: Tree, _: Tensor) -> Carry:
            return self.local.start(self.task, down, client)

        started: Carry = vmap(start, (self.down_dim, 0, 0))(down, states, keys)
        return started

    def _start(self, inputs: Tree) -> None:
        """What the clients train at first, into the buffers."""
        clients = slice(len(inputs["ids"]))
        down = self._filled(self.down, len(inputs["ids"]))
        carry = self._started(inputs["states"], inputs["keys"], down)
        tree.map(lambda buffer, new: buffer[clients].copy_(new), self.carry, carry)

    def _planner(self, p: int) -> Callable[[Tree], None]:
        """How a phase's mini-batches are drawn, into the blocks."""
        phase, size = self.phases[p], self.sizes[p]
        times = torch.arange(size.steps, device=self.device)
        n = self.counts[:1].to(self.device)
        index = BatchIndex.of(n, size, phase.steps) if self.one_size else None

        def draw(inputs: Tree) -> None:
            ids, keys = inputs["ids"], rng.fold(inputs["keys"], p)
            where, how = (self.fed.train, ids, keys), (phase.epochs, size.batch, phase.steps)
            drawn = plan(*where, *how, size, index).first(inputs.get("part"))
            step_keys = torch.zeros((len(ids), size.steps), dtype=torch.int64, device=self.device)
            if p not in self.keyless:
                step_keys = rng.fold(rng.fold(keys, -2).unsqueeze(-1), times)
            filled = torch.arange(len(ids), device=self.device) < inputs["clients"]
            steps = torch.where(filled, drawn.steps, 0)
            for b, block in enumerate(self.blocks[: len(ids) // self.width]):
                chosen = slice(b * self.width, (b + 1) * self.width)
                by_client = (drawn.rows, drawn.weight, step_keys)
                by_time = [part[chosen].transpose(0, 1) for part in by_client]
                torch._foreach_copy_(block.plans[p], [*by_time, steps[chosen]])

        return draw

    def _train(self, p: int, layout: Layout) -> bool:
        """All steps of a phase, or none."""
        for block in self.blocks:  # a phase before this one left the clocks where it ended
            block.clock.zero_()
        if p not in self.steps:
            self._make_step(p)
        if self.refused:
            return False
        steps = layout.steps(self.phases[p], self.sizes[p].batch)
        if self.device.type == "cpu":
            self._train_by_block(p, steps)
            return True
        for t in range(steps[0]):
            live = sum(n > t for n in steps)
            if (p, live) not in self.graphs:
                self.graphs[p, live] = self._captured_step(p, live)
            self.graphs[p, live]()
        return True

    def _make_step(self, p: int) -> None:
        """The step of a phase, compiled where that was asked for and can be done."""
        parts = tuple(self.fed.examples)
        step = _in_place(self.task, self.phases[p], self.template, self.down, self.down_dim, parts)
        made, block = None, self.blocks[0]
        on_cpu = self.device.type == "cpu"
        inputs = (
            self._inputs_by_step(p, block)[0] if on_cpu else self._inputs(block, block.plans[p])
        )
        if self.compiles:
            made = compile_step(
                step,
                inputs,
                len(tree.leaves(self.carry)),
                half_precision=self.task.precision != "single",
                single_thread=self.single_thread,
                max_operations=self.max_operations,
            )
            self.refused |= made is None and on_cpu
        self.steps[p] = step
        if made is not None:
            self.steps[p], unread = made
            self.compiled.add(p)
            if len(inputs) - KEYS in unread:
                self.keyless.add(p)

    def _train_by_block(self, p: int, steps: list[int]) -> None:
        """One block after another, or several at once where a step is a program of its own."""
        step = self.steps[p]

        def train(b: int) -> None:
            inputs, clock = self._inputs_by_step(p, self.blocks[b]), self.blocks[b].clock.numpy()
            for t in range(steps[b]):
                clock[0] = t  # not by torch: it would let go of Python, and wait to get it back
                step(*inputs[t])

        threads = torch.get_num_threads()
        # Steps that are not compiled use the model's modules, which threads cannot share.
        if self.single_thread and p in self.compiled and min(len(steps), threads) > 1:
            list(workers(threads).map(train, range(len(steps))))
        else:
            for b in range(len(steps)):
                train(b)

    def _inputs(self, block: _Block, plan: Sequence[Tensor]) -> list[Tensor]:
        """What a step is called with."""
        last, examples = (*plan, block.clock, block.place), self.fed.examples.values()
        return [*tree.leaves(block.carry), *tree.leaves(block.down), *examples, *last]

    def _inputs_by_step(self, p: int, block: _Block) -> list[list[Tensor]]:
        """What the steps of a phase are called with on a CPU, each with its part of the plan."""
        if p not in block.by_step:
            *by_time, steps = block.plans[p]
            parts = zip(*(torch.split(x, 1) for x in by_time), strict=True)
            block.by_step[p] = [self._inputs(block, (*part, steps)) for part in parts]
        return block.by_step[p]

    def _captured_step(self, p: int, live: int) -> Callable[[], None]:
        """A step of the first ``live`` blocks, on a GPU."""
        blocks, step = self.blocks[:live], self.steps[p]
        inputs, clock = [self._inputs(block, block.plans[p]) for block in blocks], blocks[0].clock

        def advance(side_by_side: bool = False) -> None:
            main = torch.cuda.current_stream()
            streams = [main] * live
            if side_by_side:
                streams[1:] = [new_stream() for _ in range(1, live)]  # type: ignore[no-untyped-call]
            for tensors, stream in zip(inputs, streams, strict=True):
                stream.wait_stream(main)
                with torch.cuda.stream(stream):
                    step(*tensors)
            for stream in streams[1:]:
                main.wait_stream(stream)
            clock.add_(1)

        # Recording runs a step: what it changes is put back.
        changed = [clock, *(leaf for block in blocks for leaf in tree.leaves(block.carry))]
        before = [leaf.clone() for leaf in changed]
        recorded = record(lambda: advance(side_by_side=True))
        torch._foreach_copy_(changed, before)
        return advance if recorded is None else recorded[0].replay

    def _finish(self, inputs: Tree) -> tuple[Tree, Tree, Tree]:
        """What is sent and what is kept, still in the blocks' order."""

        def finish(down: Downlink, carry: Carry, _: Tensor) -> tuple[Tree, Tree, Tree]:
            return self.local.finish(self.task, down, carry)

        clients = len(inputs["ids"])
        carry, down = tree.row(self.carry, slice(clients)), self._filled(self.down, clients)
        sent: tuple[Tree, Tree, Tree] = vmap(finish, (self.down_dim, 0, 0))(
            down, carry, inputs["ids"]
        )
        return sent


def _in_place(
    task: Task, phase: Phase, carry: Carry, down: Downlink, dim: int | None, parts: Sequence[str]
) -> InPlace:
    """The step of all clients of a block, as a function of flat tensors that changes the carry."""

    def one_client(carry: Carry, down: Downlink, batch: Batch, key: Tensor) -> Carry:
        return phase.step(task, down, carry, batch, key)

    stacked: Callable[..., Carry] = vmap(one_client, in_dims=(0, dim, 0, 0))

    def step(*tensors: Tensor) -> None:
        rest = iter(tensors)
        old = tree.map(lambda _: next(rest), carry)
        received = tree.map(lambda _: next(rest), down)
        data = {part: next(rest) for part in parts}
        rows, weight, keys, steps, t, place = rest
        rows, weight, keys = (_at(part, place).squeeze(0) for part in (rows, weight, keys))
        batch = {part: _at(values, rows) for part, values in data.items()} | {"weight": weight}
        new = tree.where(steps > t, stacked(old, received, batch, keys), old)
        tree.map(lambda buffer, value: buffer.copy_(value), old, new)

    return step


def _at(x: Tensor, rows: Tensor) -> Tensor:
    """``x[rows]``, where a compiled step need not look again whether there are such rows."""
    values: Tensor = torch.ops.aten._unsafe_index.Tensor(x, [rows])
    return values


def workers(number: int) -> ThreadPoolExecutor:
    """A pool of so many threads, each with one of torch's own, that stay until the process ends."""
    return _pool(number, os.getpid())  # a forked process has none of its parent's threads


@cache
def _pool(number: int, process: int) -> ThreadPoolExecutor:
    pool, all_started = ThreadPoolExecutor(number, "glocal"), Barrier(number + 1)

    def start() -> None:
        torch.set_num_threads(1)  # of this thread, and of those that start after it
        torch.get_num_threads()  # a thread that has not asked takes the number of others later
        torch.set_grad_enabled(False)
        all_started.wait()

    before = torch.get_num_threads()
    started = [pool.submit(start) for _ in range(number)]
    all_started.wait()
    for thread in started:
        thread.result()
    torch.set_num_threads(before)
    return pool
