"""What clients send of an update: less of it, with a memory of what was left out.

A compressor is a function of one client's update; what it returns is the update as the server
decodes it, and :attr:`Compression.size` says how many bytes the message took. It acts on the shared
part of the model alone, as the last thing that a client does. So weightings, aggregators and the
clip of ``dp`` see decoded updates, and what a method sends beside the update goes as it is.

Error feedback (Seide, Fu, Droppo, Li, Yu: *1-bit stochastic gradient descent*, Interspeech 2014;
Stich, Cordonnier, Jaggi: *Sparsified SGD with memory*, NeurIPS 2018; Karimireddy, Rebjock, Stich,
Jaggi: *Error feedback fixes SignSGD*, ICML 2019). A client remembers what it did not send, and adds
it to its next update::

    a = Δ + e        send C(a)        e ← a − C(a)

so that all it has sent and what it remembers is the sum of its updates. The memory is part of the
client's state: it waits where a client is not sampled, and is saved and resumed with the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from glocal.core import rng, tree
from glocal.core.types import Carry, ClientState, Downlink, Params, Tree
from glocal.nn.task import Task
from glocal.slots.client import Local, beside
from glocal.slots.sharing import split

DRAWS = -5
"""The child of a client's first key that its draws for compression come from."""


class MessageSize(NamedTuple):
    """What one client's update takes when it is sent."""

    numbers: int
    """Values: of a sparse update those that are sent, of a factorised one the factors'."""
    bytes: int
    """With all that decoding needs: positions, scales."""


def whole(update: Params) -> MessageSize:
    """The size of an update that is sent as it is."""
    return MessageSize(tree.count(update), sum(x.nbytes for x in update.values()))


@dataclass(frozen=True)
class Compression:
    """A compressor, and whether clients remember what it leaves out."""

    name: str
    compress: Callable[[Params, Tensor], Params]
    """``compress(update, key)``: one client's update as the server decodes it. It is vmapped."""
    size: Callable[[Params], MessageSize] = whole
    """What is sent of an update with these shapes."""
    feedback: bool = True
    """Whether what was left out is added to the client's next update."""
    draws: bool = True
    """Whether it draws anything: then each client has a key of its own in each round."""


def compress_updates(inner: Local, compression: Compression, shared: frozenset[str]) -> Local:
    """``inner``, whose update of the ``shared`` parameters is compressed before it is sent."""

    def init(task: Task, params: Params, key: Tensor) -> ClientState:
        state: ClientState = {"inner": inner.init(task, params, key)}
        if compression.feedback:
            state["unsent"] = tree.zeros(split(params, shared)[0])
        if compression.draws:
            state["key"] = rng.fold(key, DRAWS)
        return state

    def finish(task: Task, down: Downlink, carry: Carry) -> tuple[Params, ClientState, Tree]:
        update, state, extra = inner.finish(task, down, carry["inner"])
        kept: ClientState = {**carry, "inner": state}
        number = down["round"].to(torch.int64)
        key = rng.fold(carry["key"], number) if compression.draws else number
        if not compression.feedback:
            return compression.compress(update, key), kept, extra
        wanted = tree.add(update, carry["unsent"])
        sent = compression.compress(wanted, key)
        return sent, {**kept, "unsent": tree.sub(wanted, sent)}, extra

    return beside(inner, init=init, finish=finish)
