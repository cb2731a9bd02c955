"""What a client does: the client's half of a method, written for one client.

A ``Local`` is pure. The engine owns the loops over clients, epochs and mini-batches; a ``Local``
says how a round starts, what one mini-batch does (the paper's equation), and what is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from torch import Tensor

from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.core.types import Batch, Carry, ClientState, Downlink, Params, Tree
from glocal.nn.optim import Optimizer, Schedule, constant, sgd
from glocal.nn.task import Task

Step = Callable[[Task, Downlink, Carry, Batch, Tensor], Carry]


class Phase(NamedTuple):
    """Part of a client's round: ``step`` on every mini-batch of ``epochs`` passes over its data."""

    name: str
    epochs: int
    step: Step
    steps: int | None = None
    """So many mini-batches for every client instead, in as many passes as that takes."""


class Local(Protocol):
    """The contract: ``down`` is what the server sent, ``client`` what the client keeps for good."""

    @property
    def batch_size(self) -> int:
        """Examples in a mini-batch; 0 for all of the client's at once."""
        ...

    @property
    def schedule(self) -> Schedule:
        """Factor on the learning rate by round; the server sends it as ``down["lr"]``."""
        ...

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Usually one; FedRep has two (head, then body)."""
        ...

    def init(self, task: Task, params: Params, key: Tensor) -> ClientState:
        """What the client keeps, made at its first round from the parameters it then receives."""
        ...

    def start(self, task: Task, down: Downlink, client: ClientState) -> Carry:
        """What is trained in this round: weights and a fresh optimiser state."""
        ...

    def finish(self, task: Task, down: Downlink, carry: Carry) -> tuple[Params, ClientState, Tree]:
        """The update (new minus received), what the client keeps, and what else it sends."""
        ...

    def received(self, task: Task, down: Downlink, client: ClientState) -> Params:
        """The model as received, before training: fair weightings ask for its loss."""
        ...

    def candidates(self, task: Task, down: Downlink, client: ClientState) -> dict[str, Params]:
        """The models this client may predict with; evaluation picks one on validation data."""
        ...


Objective = Callable[[Task, Downlink, Params, Batch, Tensor], Tensor]
"""What a client minimises on a mini-batch, as a function of the weights it trains."""


def plain_loss(task: Task, down: Downlink, w: Params, batch: Batch, key: Tensor) -> Tensor:
    """The task's own loss, nothing added."""
    return task.loss(w, batch, key)


@dataclass(frozen=True)
class LocalSGD:
    """Start at the received model, minimise ``objective`` on mini-batches, send the difference.

    Keeps nothing between rounds; the optimiser's state is fresh every round. The model that is
    judged is the received one.
    """

    opt: Optimizer = field(default_factory=lambda: sgd(0.1))
    epochs: int = 1
    batch_size: int = 10
    objective: Objective = plain_loss
    schedule: Schedule = field(default_factory=constant)

    def __post_init__(self) -> None:
        check_counts(epochs=self.epochs, batch_size=self.batch_size)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """One: all of it."""
        return (Phase("train", self.epochs, self.step),)

    def init(self, task: Task, params: Params, key: Tensor) -> ClientState:
        """Nothing to keep."""
        return {}

    def start(self, task: Task, down: Downlink, client: ClientState) -> Carry:
        """The received weights and a fresh optimiser."""
        return {"w": down["params"], "opt": self.opt.init(down["params"])}

    def step(self, task: Task, down: Downlink, carry: Carry, batch: Batch, key: Tensor) -> Carry:
        """``w ← opt(w, ∇ objective(w))``."""
        grads, _ = task.grad(lambda w: self.objective(task, down, w, batch, key), carry["w"])
        w, opt = self.opt.update(grads, carry["opt"], carry["w"], down["lr"])
        return {"w": w, "opt": opt}

    def finish(self, task: Task, down: Downlink, carry: Carry) -> tuple[Params, ClientState, Tree]:
        """``w_i − w``; nothing kept, nothing else sent."""
        return tree.sub(carry["w"], down["params"]), {}, {}

    def received(self, task: Task, down: Downlink, client: ClientState) -> Params:
        """What the server sent."""
        params: Params = down["params"]
        return params

    def candidates(self, task: Task, down: Downlink, client: ClientState) -> dict[str, Params]:
        """What the server sent: everybody predicts with the same model."""
        return {"global": down["params"]}


Init = Callable[[Task, Params, Tensor], ClientState]
Start = Callable[[Task, Downlink, ClientState], Carry]
Finish = Callable[[Task, Downlink, Carry], tuple[Params, ClientState, Tree]]
Received = Callable[[Task, Downlink, ClientState], Params]
Candidates = Callable[[Task, Downlink, ClientState], dict[str, Params]]


@dataclass(frozen=True)
class Functions:
    """A ``Local`` made of functions: how methods are written (see :func:`variant`)."""

    batch_size: int
    schedule: Schedule
    phases: tuple[Phase, ...]
    init: Init
    start: Start
    finish: Finish
    received: Received
    candidates: Candidates
    solves_when_judged: bool = False
    """Whether a client that never took part runs a round of its own before it is judged."""
    whole_model_in_state: bool = False
    """Whether the client keeps its model whole, and none of it travels."""


def variant(
    base: LocalSGD,
    *,
    init: Init | None = None,
    start: Start | None = None,
    step: Step | None = None,
    phases: tuple[Phase, ...] | None = None,
    finish: Finish | None = None,
    received: Received | None = None,
    candidates: Candidates | None = None,
    solves_when_judged: bool = False,
    whole_model_in_state: bool = False,
) -> Local:
    """``base`` with some of its functions replaced; ``step`` alone means one phase of it."""
    if phases is None:
        phases = base.phases if step is None else (Phase("train", base.epochs, step),)
    return Functions(
        batch_size=base.batch_size,
        schedule=base.schedule,
        phases=phases,
        init=init or base.init,
        start=start or base.start,
        finish=finish or base.finish,
        received=received or base.received,
        candidates=candidates or base.candidates,
        solves_when_judged=solves_when_judged,
        whole_model_in_state=whole_model_in_state,
    )


def sending(local: Local, message: Callable[[Tree], Tree]) -> Local:
    """``local``, but beside its update it sends ``message`` of what it would have sent."""

    def finish(task: Task, down: Downlink, carry: Carry) -> tuple[Params, ClientState, Tree]:
        update, client, extra = local.finish(task, down, carry)
        return update, client, message(extra)

    return Functions(
        batch_size=local.batch_size,
        schedule=local.schedule,
        phases=local.phases,
        init=local.init,
        start=local.start,
        finish=finish,
        received=local.received,
        candidates=local.candidates,
        solves_when_judged=getattr(local, "solves_when_judged", False),
        whole_model_in_state=getattr(local, "whole_model_in_state", False),
    )


MOST_EPOCHS = 10_000


def check_counts(*, epochs: int, batch_size: int) -> None:
    """Refuse counts that make no round."""
    if isinstance(epochs, bool) or not isinstance(epochs, int) or not 1 <= epochs <= MOST_EPOCHS:
        raise GlocalError(
            f"epochs must be a whole number from 1 to {MOST_EPOCHS:,} a round, not {epochs}."
        )
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 0:
        raise GlocalError(
            f"batch_size must be a whole number of 1 or more (0: all at once), not {batch_size}."
        )
