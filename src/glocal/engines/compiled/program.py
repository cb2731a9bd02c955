"""The client's half of a round as programs of fixed shapes, kept from round to round.

Clients are cut into blocks (:mod:`glocal.engines.compiled.blocks`), and what is trained lies in
buffers that a step changes in place. The step is compiled where that pays. On a CPU a block is
trained by one thread, from its first step to its last, so that it stays in that core's own cache.
On a GPU a step is captured as a CUDA graph, one for each number of blocks that are still at work,
with the blocks side by side on streams of their own; what comes before and after the steps is
captured too. So a step costs one launch, whatever the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import vmap

from glocal.core import rng, tree
from glocal.core.types import Carry, Downlink, Tree, Uplink
from glocal.engines.base import CohortRound, Workload
from glocal.engines.batching import Cuts, PlanSize, plan
from glocal.engines.compiled.blocks import Layout, cached, width
from glocal.engines.compiled.cuda_graphs import Captured, record
from glocal.engines.compiled.inductor import MOST, InPlace, compiled
from glocal.engines.compiled.threads import workers
from glocal.nn.task import Task
from glocal.slots.client import Phase

KEYS = 3
"""Where the clients' keys are among the inputs of a step, from the end."""


@dataclass
class _Plan:
    """The mini-batches of one block in one phase: time first, so that a step's are contiguous."""

    rows: Tensor
    """[steps, width, batch]"""
    weight: Tensor
    keys: Tensor
    """[steps, width]"""
    steps: Tensor
    """[width] how many each client has."""


class Program:
    """All rounds of one training: one client half on one federation."""

    def __init__(
        self, work: CohortRound, workload: Workload, compiles: bool, widest: int, asked: bool
    ) -> None:
        self.task, self.local, self.fed = work.task, work.local, work.fed
        self.device = work.ids.device
        self.compiles = compiles
        self.most = math.inf if asked else MOST
        """Operations of a step up to which it is compiled: any number, where that was asked for."""
        self.phases = self.local.phases
        self.rooms = [PlanSize.of(self.fed.train, p, self.local.batch_size) for p in self.phases]
        longest = max(range(len(self.phases)), key=lambda p: self.rooms[p].steps)
        wide = width(self.fed.train, self.phases[longest], self.rooms[longest].batch, workload)
        self.down = tree.map(torch.clone, work.down)
        self.one = self._started(tree.row(work.states, slice(1)), work.keys[:1])
        """What one client trains, for its shapes."""
        self.narrow = False
        """Whether a block is for one thread, and not for all of them."""
        if self.device.type == "cpu":
            size = sum(leaf.nbytes for leaf in tree.leaves(self.one))
            fits = cached(workload.cohort, size)
            self.narrow = fits < workload.cohort
            wide = min(wide, fits)
        self.width = min(wide, widest)
        self.counts = self.fed.train.counts().cpu()
        self.carries: list[Carry] = []
        self.whole: Carry = {}
        """The first of them, as one."""
        self.held: set[int] = set()
        """Where the buffers are in memory."""
        self.plans: list[list[_Plan]] = [[] for _ in self.phases]
        self.times: list[Tensor] = []
        """Which step each block is at; on a GPU they are all at the same one."""
        self.steps: dict[int, InPlace] = {}
        self.refused = False
        """Whether a step was to be compiled and could not be, on a CPU: blocks that fit a core's
        cache are then no gain, but many small calls."""
        self.apart = [False] * len(self.phases)
        """Whether steps of several blocks can be taken at once: a model's modules cannot."""
        self.draws = [True] * len(self.phases)
        """Whether the steps of a phase draw anything, as far as it is known."""
        self.alike = bool((self.counts == self.counts[0]).all())
        self.layouts: dict[int, Layout] = {}
        """Those of cohorts of so many clients, where all have as many examples."""
        self.graphs: dict[tuple[int, int], Callable[[], None]] = {}
        self.begin = Captured(self._begin, self.device)
        # Draws are numpy's on a CPU, which tracing does not see.
        lays = (self._laying(p) for p in range(len(self.phases)))
        self.lay = [Captured(lay, self.device, pure=False) for lay in lays]
        self.finish = Captured(self._finish, self.device)

    def round(self, work: CohortRound) -> tuple[Uplink, Tree] | None:
        """A cohort's updates and new states; None: what makes blocks worth it cannot be had."""
        if self.refused:
            return None
        layout = self.layouts.get(len(work.ids))
        if layout is None:
            layout = Layout.of(self.counts[work.ids.cpu()], self.width, self.device)
            if self.alike:
                self.layouts[len(work.ids)] = layout
        ids, keys, states = work.ids, work.keys, work.states
        if layout.moved:
            ids, keys = ids[layout.order], keys[layout.order]
            states = tree.row(states, layout.order)
        torch._foreach_copy_(tree.leaves(self.down), _in_order(self.down, work.down))
        # How many places are somebody's, as a tensor: a graph reads it.
        real = torch.tensor(len(work.ids), device=self.device)
        cohort = {"ids": ids, "keys": keys, "real": real}
        if len(self.carries) < layout.blocks:
            self._make_room(layout.blocks)
        self.begin({**cohort, "states": states})
        for p in range(len(self.phases)):
            self.lay[p](cohort)
            if not self._train(p, layout):
                return None
        sent = self.finish(cohort)
        if layout.moved:
            update, states, extra = (tree.row(part, layout.places) for part in sent)
        else:
            update, states, extra = (tree.map(self._own, part) for part in sent)
        n = self.fed.train.start[work.ids + 1] - self.fed.train.start[work.ids]
        return Uplink(ids=work.ids, n=n, update=update, loss=None, extra=extra), states

    def _own(self, sent: Tensor) -> Tensor:
        """A copy of what the next round overwrites: a graph's answers, and what is in buffers."""
        mine = self.device.type == "cuda" or sent.untyped_storage().data_ptr() in self.held
        return sent.clone() if mine else sent

    def _make_room(self, blocks: int) -> None:
        """Buffers for so many blocks; those there are stay where they are."""
        new, wide = blocks - len(self.carries), self.width
        more = _zeros(self.one, new * wide)
        self.carries += [tree.row(more, slice(b * wide, (b + 1) * wide)) for b in range(new)]
        self.whole = self.whole or more
        for plans, room in zip(self.plans, self.rooms, strict=True):
            size = (room.steps, wide, room.batch)
            plans += [
                _Plan(
                    torch.zeros(size, dtype=torch.int64, device=self.device),
                    torch.zeros(size, device=self.device),
                    torch.zeros(size[:2], dtype=torch.int64, device=self.device),
                    torch.zeros(wide, dtype=torch.int64, device=self.device),
                )
                for _ in range(new)
            ]
        for _ in range(new):
            shared = self.times and self.device.type == "cuda"
            zero = torch.zeros(1, dtype=torch.int64, device=self.device)
            self.times.append(self.times[0] if shared else zero)
        buffers = [self.down, *self.carries]
        self.held = {x.untyped_storage().data_ptr() for part in buffers for x in tree.leaves(part)}

    def _joined(self, clients: int) -> Carry:
        """What the blocks of so many clients hold."""
        if all(len(leaf) == clients for leaf in tree.leaves(self.whole)):
            return self.whole
        parts = self.carries[: clients // self.width]
        return tree.cat(parts) if len(parts) > 1 else parts[0]

    def _started(self, states: Tree, keys: Tensor) -> Carry:
        def one(client: Tree, _: Tensor) -> Carry:
            return self.local.start(self.task, self.down, client)

        started: Carry = vmap(one)(states, keys)
        return started

    def _begin(self, cohort: Tree) -> None:
        """What is trained, into the blocks."""
        carry = self._started(cohort["states"], cohort["keys"])
        clients = len(cohort["ids"])
        if all(len(leaf) == clients for leaf in tree.leaves(self.whole)):
            tree.map(lambda to, what: to.copy_(what), self.whole, carry)
            return
        for b, mine in enumerate(self.carries[: clients // self.width]):
            part = tree.row(carry, slice(b * self.width, (b + 1) * self.width))
            tree.map(lambda to, what: to.copy_(what), mine, part)

    def _laying(self, p: int) -> Callable[[Tree], None]:
        """How a phase's mini-batches are drawn, into the blocks."""
        phase, room = self.phases[p], self.rooms[p]
        cuts = Cuts(self.fed.train, room, phase.steps)
        times = torch.arange(room.steps, device=self.device)

        def lay(cohort: Tree) -> None:
            ids = cohort["ids"]
            keys = rng.fold(cohort["keys"], p)
            drawn = plan(
                self.fed.train, ids, keys, phase.epochs, room.batch, phase.steps, room, cuts
            )
            step_keys = rng.fold(rng.fold(keys, -2).unsqueeze(-1), times) if self.draws[p] else None
            there = torch.arange(len(ids), device=self.device) < cohort["real"]
            steps = torch.where(there, drawn.steps, 0)
            for b in range(len(ids) // self.width):
                cut, to = slice(b * self.width, (b + 1) * self.width), self.plans[p][b]
                to.rows.copy_(drawn.rows[cut].transpose(0, 1))
                to.weight.copy_(drawn.weight[cut].transpose(0, 1))
                if step_keys is not None:
                    to.keys.copy_(step_keys[cut].T)
                to.steps.copy_(steps[cut])

        return lay

    def _train(self, p: int, layout: Layout) -> bool:
        """All steps of a phase, or none."""
        longest = self._longest(p, layout)
        for clock in self.times:  # a phase before this one left them where it ended
            clock.zero_()
        if p not in self.steps:
            self.steps[p] = step = _in_place(self.task, self.phases[p], self.one, self.down)
            if self.compiles:
                changed = len(tree.leaves(self.carries[0]))
                inputs = self._inputs(p, 0)
                rough = self.task.precision != "single"
                self.steps[p], unread = compiled(
                    step, inputs, changed, rough=rough, alone=self.narrow, most=self.most
                )
                self.draws[p] = len(inputs) - KEYS not in unread
                self.apart[p] = self.narrow and self.steps[p] is not step
                self.refused |= self.steps[p] is step and self.device.type == "cpu"
        if self.refused:
            return False
        if self.device.type == "cpu":
            self._by_block(p, longest)
            return True
        for t in range(longest[0]):
            live = sum(steps > t for steps in longest)
            if (p, live) not in self.graphs:
                self.graphs[p, live] = self._advancing(p, live)
            self.graphs[p, live]()
        return True

    def _by_block(self, p: int, longest: list[int]) -> None:
        """One block after another, or several at once where a step is a program of its own."""
        step = self.steps[p]

        def train(b: int) -> None:
            inputs, clock = self._inputs(p, b), self.times[b].numpy()
            for t in range(longest[b]):
                clock[0] = t  # not by torch: it would let go of Python, and wait to get it back
                step(*inputs)

        if self.apart[p] and len(longest) > 1 and torch.get_num_threads() > 1:
            list(workers(torch.get_num_threads()).map(train, range(len(longest))))
        else:
            for b in range(len(longest)):
                train(b)

    def _longest(self, p: int, layout: Layout) -> list[int]:
        """Steps of each block: its first client has the most examples."""
        phase, room = self.phases[p], self.rooms[p]
        if phase.steps:
            return [phase.steps] * layout.blocks
        return [-(-n // room.batch) * phase.epochs for n in layout.most]

    def _inputs(self, p: int, b: int) -> list[Tensor]:
        of, mine = self.plans[p][b], tree.leaves(self.carries[b])
        data = (self.fed.x, self.fed.y_train)
        plan = (of.rows, of.weight, of.keys, of.steps)
        return [*mine, *tree.leaves(self.down), *data, *plan, self.times[b]]

    def _advancing(self, p: int, live: int) -> Callable[[], None]:
        """A step of the first ``live`` blocks, on a GPU."""
        step, inputs = self.steps[p], [self._inputs(p, b) for b in range(live)]

        clock = self.times[0]

        def one_by_one() -> None:
            for own in inputs:
                step(*own)
            clock.add_(1)

        def side_by_side() -> None:
            main = torch.cuda.current_stream()
            sides = [main, *(torch.cuda.Stream() for _ in range(1, live))]  # type: ignore[no-untyped-call]
            for own, side in zip(inputs, sides, strict=True):
                side.wait_stream(main)
                with torch.cuda.stream(side):
                    step(*own)
            for side in sides[1:]:
                main.wait_stream(side)
            clock.add_(1)

        # Recording runs a step: what it changes is put back.
        changed = [clock, *(leaf for carry in self.carries[:live] for leaf in tree.leaves(carry))]
        before = [leaf.clone() for leaf in changed]
        recorded = record(side_by_side)
        torch._foreach_copy_(changed, before)
        return one_by_one if recorded is None else recorded[0].replay

    def _finish(self, cohort: Tree) -> tuple[Tree, Tree, Tree]:
        """What is sent and what is kept, still in the blocks' order."""
        carry = self._joined(len(cohort["ids"]))

        def one(carry: Carry, _: Tensor) -> tuple[Tree, Tree, Tree]:
            return self.local.finish(self.task, self.down, carry)

        sent: tuple[Tree, Tree, Tree] = vmap(one)(carry, cohort["ids"])
        return sent


def _zeros(carry: Carry, clients: int) -> Carry:
    return tree.map(lambda x: x.new_zeros((clients, *x.shape[1:])), carry)


def _in_order(like: Tree, other: Tree) -> list[Tensor]:
    """The leaves of ``other`` in the order of ``like``'s."""
    return tree.leaves(tree.map(lambda _, leaf: leaf, like, other))


def _in_place(task: Task, phase: Phase, carry: Carry, down: Downlink) -> InPlace:
    """The step of all clients of a block, as a function of flat tensors that changes the carry."""

    def one(carry: Carry, down: Downlink, batch: dict[str, Tensor], key: Tensor) -> Carry:
        return phase.step(task, down, carry, batch, key)

    stacked: Callable[..., Carry] = vmap(one, in_dims=(0, None, 0, 0))

    def step(*tensors: Tensor) -> None:
        rest = iter(tensors)
        mine = tree.map(lambda _: next(rest), carry)
        received = tree.map(lambda _: next(rest), down)
        x, y, rows, weight, keys, steps, t = rest
        rows, weight, keys = (_at(part, t).squeeze(0) for part in (rows, weight, keys))
        batch = {"x": _at(x, rows), "y": _at(y, rows), "weight": weight}
        new = tree.where(steps > t, stacked(mine, received, batch, keys), mine)
        tree.map(lambda old, value: old.copy_(value), mine, new)

    return step


def _at(x: Tensor, rows: Tensor) -> Tensor:
    """``x[rows]``, where a compiled step need not look again whether there are such rows."""
    found: Tensor = torch.ops.aten._unsafe_index.Tensor(x, [rows])
    return found
