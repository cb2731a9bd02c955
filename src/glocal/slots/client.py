"""The client's half of a method, written for one client.

A ``Local`` is made of pure functions. The engine owns the loops over clients, epochs and
mini-batches; a ``Local`` says how a round starts, what one mini-batch does (the paper's equation),
and what is sent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from torch import Tensor

from glocal.core import tree
from glocal.core.types import Batch, Carry, ClientState, Downlink, Params, Tree
from glocal.core.validation import integer
from glocal.nn.optim import Optimizer, Schedule, constant, sgd
from glocal.nn.task import Task

Init = Callable[[Task, Params, Tensor], ClientState]
Start = Callable[[Task, Downlink, ClientState], Carry]
Step = Callable[[Task, Downlink, Carry, Batch, Tensor], Carry]
Finish = Callable[[Task, Downlink, Carry], tuple[Params, ClientState, Tree]]
Received = Callable[[Task, Downlink, ClientState], Params]
PredictsFrom = Callable[[ClientState], Tree]
Candidates = Callable[[Task, Downlink, ClientState], dict[str, Params]]
OtherGradients = Callable[[Downlink, Tensor], Tensor]

MOST_EPOCHS = 10_000


class Phase(NamedTuple):
    """Part of a client's round: ``step`` on every mini-batch of ``epochs`` passes over its data."""

    name: str
    epochs: int
    step: Step
    steps: int | None = None
    """So many mini-batches for every client instead, in as many passes as that takes."""
    gradients: int = 1
    """Gradients that a step takes of each example of its mini-batch."""


@dataclass(frozen=True, kw_only=True)
class Local:
    """The contract: ``down`` is what the server sent, ``client`` what the client keeps for good.

    Methods start from :func:`minibatch_training` and :meth:`replace` the functions that differ.
    """

    phases: tuple[Phase, ...]
    """Usually one; FedRep has two (head, then body)."""
    start: Start
    """``start(task, down, client)``: what is trained in this round, the carry."""
    finish: Finish
    """``finish(task, down, carry)``: the update (new minus received), what the client keeps, and
    what else it sends."""
    init: Init = lambda task, params, key: {}
    """What the client keeps, made at its first round from the parameters it then receives."""
    received: Received = lambda task, down, client: down["params"]
    """The model before training, whose loss fair weightings ask for."""
    candidates: Candidates = lambda task, down, client: {"global": down["params"]}
    """The models this client may predict with; evaluation picks one on validation data."""
    predicts_from: PredictsFrom = lambda client: client
    """What of a client's state its candidates depend on; nothing: all clients have the same."""
    batch_size: int = 10
    """Examples in a mini-batch; 0 for all of the client's at once."""
    schedule: Schedule = field(default_factory=constant)
    """Factor on the learning rate by round; the server sends it as ``down["lr"]``."""
    opt: Optimizer = field(default_factory=lambda: sgd(0.1))
    """The optimiser that the functions were made with."""
    solve_before_evaluation: bool = False
    """Whether a client that never took part runs a round of its own before it is evaluated."""
    keeps_whole_model: bool = False
    """Whether the model is private as a whole, kept in the client's state."""
    resends: bool = False
    """Whether an update has in it what earlier ones left out, since it is the difference of a model
    that the client keeps: then compression must not remember that, too."""
    other_gradients: OtherGradients = lambda down, steps: 0 * steps
    """``other_gradients(down, steps)``: gradients of examples that are not the client's own, such
    as synthetic ones, in rounds of so many ``steps``."""
    poisson: bool = False
    """Whether mini-batches are Poisson samples of the client's examples, as privacy accounting
    wants them, in place of passes over these."""
    networks: Callable[[Downlink], Tree] = lambda down: {}
    """What of a downlink are networks that clients train beside the task's model."""
    training: tuple[tuple[str, Any], ...] = ()
    """The settings of training that it was made with, by name, for records."""

    def __post_init__(self) -> None:
        check_counts(epochs=1, batch_size=self.batch_size)
        for phase in self.phases:
            check_counts(epochs=phase.epochs, batch_size=self.batch_size)

    @property
    def step(self) -> Step:
        """What the first phase does on a mini-batch."""
        return self.phases[0].step

    @property
    def epochs(self) -> int:
        """Passes over the data in the first phase."""
        return self.phases[0].epochs

    def replace(self, *, step: Step | None = None, gradients: int = 1, **changes: Any) -> Self:
        """The same client with other functions; ``step`` is that of its first phase.

        ``gradients`` are what that step takes of each example.
        """
        if step is not None:
            first, *others = self.phases
            changes["phases"] = (first._replace(step=step, gradients=gradients), *others)
        return dataclasses.replace(self, **changes)


Objective = Callable[[Task, Downlink, Params, Batch, Tensor], Tensor]
"""What a client minimises on a mini-batch, as a function of the weights it trains."""


def plain_loss(task: Task, down: Downlink, w: Params, batch: Batch, key: Tensor) -> Tensor:
    """The task's own loss, nothing added."""
    return task.loss(w, batch, key)


def minibatch_training(
    opt: Optimizer | None = None,
    *,
    epochs: int = 1,
    batch_size: int = 10,
    objective: Objective = plain_loss,
    schedule: Schedule | None = None,
) -> Local:
    """FedAvg's client: ``objective`` is minimised from the received model, the difference sent.

    It keeps nothing between rounds; the optimiser's state is fresh every round. The model that is
    evaluated is the received one.
    """
    opt = sgd(0.1) if opt is None else opt

    def start(task: Task, down: Downlink, client: ClientState) -> Carry:
        return {"w": down["params"], "opt": opt.init(down["params"])}

    def step(task: Task, down: Downlink, carry: Carry, batch: Batch, key: Tensor) -> Carry:
        grads, _ = task.grad(lambda w: objective(task, down, w, batch, key), carry["w"])
        w, state = opt.update(grads, carry["opt"], carry["w"], down["lr"])
        return {"w": w, "opt": state}

    def finish(task: Task, down: Downlink, carry: Carry) -> tuple[Params, ClientState, Tree]:
        return tree.sub(carry["w"], down["params"]), {}, {}

    return Local(
        phases=(Phase("train", epochs, step),),
        start=start,
        finish=finish,
        batch_size=batch_size,
        schedule=schedule or constant(),
        opt=opt,
    )


def beside(inner: Local, *, init: Init, finish: Finish, **changes: Any) -> Local:
    """``inner`` with a state beside its own, which is ``state["inner"]``; other functions differ.

    Without others of its own, it starts and steps as ``inner`` does, and keeps the rest as it is.
    """

    def start(task: Task, down: Downlink, client: ClientState) -> Carry:
        return {**client, "inner": inner.start(task, down, client["inner"])}

    def on_inner(step: Step) -> Step:
        def inner_step(
            task: Task, down: Downlink, carry: Carry, batch: Batch, key: Tensor
        ) -> Carry:
            return {**carry, "inner": step(task, down, carry["inner"], batch, key)}

        return inner_step

    functions: dict[str, Any] = {
        "start": start,
        "phases": tuple(p._replace(step=on_inner(p.step)) for p in inner.phases),
        "received": lambda task, down, client: inner.received(task, down, client["inner"]),
        "candidates": lambda task, down, client: inner.candidates(task, down, client["inner"]),
        "predicts_from": lambda client: inner.predicts_from(client["inner"]),
    }
    return inner.replace(init=init, finish=finish, **{**functions, **changes})


def check_counts(*, epochs: int, batch_size: int) -> None:
    """Raise unless a round can have so many epochs and batches of that size (0: all at once)."""
    integer(epochs, "epochs", 1, MOST_EPOCHS)
    integer(batch_size, "batch_size", 0)
