"""What one client takes, measured: its half of a method is walked through once, on a few examples.

What every function returns, and what autograd saves on the way, is counted; for a whole mini-batch
it is extrapolated. That costs milliseconds, and no more memory than one client's training.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from glocal.core import rng, tree
from glocal.core.types import Tree
from glocal.nn.task import Task
from glocal.slots.method import Method
from glocal.slots.server_half import whole_model
from glocal.slots.weighting import Setting

FEW = (2, 3)
"""Examples in the mini-batches that are tried."""


@dataclass(frozen=True)
class Client:
    """Bytes that one client takes, of each kind."""

    state: int = 0
    """What it keeps for good."""
    carry: int = 0
    """What changes from step to step: weights and the optimiser's state."""
    sent: int = 0
    """Its update and what else it sends."""
    gradient: int = 0
    saved: int = 0
    """What autograd keeps of one mini-batch for the backward pass."""
    candidates: int = 0
    """The models it may predict with."""

    @property
    def step(self) -> int:
        """Before and after a step there is a carry; on the way there is what autograd saved."""
        return self.carry + self.gradient + max(self.saved, self.carry)

    @property
    def left(self) -> int:
        """What its round leaves."""
        return self.sent + self.state


def bytes_of(state: Tree) -> int:
    """Of all leaves."""
    return sum(leaf.nbytes for leaf in tree.leaves(state))


def footprint(
    method: Method, task: Task, x: Tensor, y: Tensor, longest: int, setting: Setting
) -> tuple[Client, int]:
    """What the client takes that has most examples, ``longest``, and the server's state."""
    task = task.largest().plain()
    local = method.client_half(task, setting.schema)
    key = rng.key(0, x.device)
    with torch.no_grad():
        begun = method.begin(task, task.params, setting)
        down = method.broadcast(begun, 0, setting)
        client = local.init(task, whole_model(task, begun), key)
        given = [*tree.leaves(down), *tree.leaves(client)]
        carry = local.start(task, down, client)
        size = min(local.batch_size or longest, longest)
        changed: dict[str, int] = {}
        saved = 0
        for phase in local.phases:
            kept = []
            for examples in FEW:
                watch = _Watch([*given, *tree.leaves(carry)])
                rows = torch.arange(examples, device=x.device) % len(x)
                batch = {
                    "x": x[rows],
                    "y": y[rows],
                    "weight": torch.ones(examples, device=x.device),
                }
                if setting.schema is not None and (apart := len(setting.schema.attributes)):
                    batch["attributes"] = torch.zeros_like(rows).unsqueeze(-1).expand(-1, apart)
                with saved_tensors_hooks(watch.pack, watch.unpack):
                    after = phase.step(task, down, carry, batch, key)
                kept.append(watch.most)
            # Two points make a line: what is saved grows with the examples, from a fixed part on.
            each = (kept[1] - kept[0]) / (FEW[1] - FEW[0])
            saved = max(saved, round(kept[0] + each * (size - FEW[0])))
            before = dict(tree.flatten(carry))
            changed |= {n: t.nbytes for n, t in tree.flatten(after) if before.get(n) is not t}
            carry = after
        update, state, extra = local.finish(task, down, carry)
        models = local.candidates(task, down, client)
    one = Client(
        state=bytes_of(state),
        carry=sum(changed.values()),
        sent=bytes_of(update) + bytes_of(extra),
        gradient=bytes_of(task.params),
        saved=saved,
        candidates=bytes_of(models),
    )
    return one, bytes_of(begun)


class _Watch:
    """Counts what autograd saves at once; what is there anyway (``given``) costs nothing more."""

    def __init__(self, given: Iterable[Tensor]) -> None:
        self.given = {t.untyped_storage().data_ptr() for t in given}
        self.now: dict[int, int] = {}
        self.backward = False
        self.most = 0

    def pack(self, tensor: Tensor) -> Tensor:
        """Called with what is saved."""
        if self.backward:  # another gradient: what the last one saved is gone
            self.now, self.backward = {}, False
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.given:
            self.now[storage.data_ptr()] = storage.nbytes()
        self.most = max(self.most, sum(self.now.values()))
        return tensor

    def unpack(self, tensor: Tensor) -> Tensor:
        """Called with what is used in a backward pass."""
        self.backward = True
        return tensor
