"""Local training, each client by itself: what federation has to beat.

Nothing is communicated. A client trains its own fresh initialisation on its own data and keeps its
optimiser from round to round, since there is no server to interrupt it. As a method on its own
(``local``) it is the local baseline of every comparison: :mod:`glocal.experiment.baseline` gives
each client its own learning rate from a grid and stops early, both on the client's validation
data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.core.types import Batch, Carry, ClientState, Downlink, Params
from glocal.core.validation import positive, positive_integers
from glocal.methods.training_args import (
    DEFAULTS,
    TrainingArgs,
    client_optimiser,
    in_force,
    schedule,
)
from glocal.nn.optim import Plateau
from glocal.nn.task import Task
from glocal.slots.client import Candidates, Finish, Local, Phase, Received, Start
from glocal.slots.method import Method
from glocal.slots.sharing import nothing

GRID = (0.03, 0.1, 0.3)
"""The learning rates that clients may pick from, unless others are given."""


@dataclass(frozen=True, kw_only=True)
class LocalTraining(Local):
    """A client that trains by itself, from where it stopped; its state has ``w``, ``opt``, ``lr``.

    The learning rate is part of the state, and so is ``decay``, a weight decay beside that of the
    optimiser, where there is one: one program trains a client with several of them.
    """

    rates: tuple[float, ...]
    """Learning rates that a client may pick from; none: those of the local baseline."""
    decays: tuple[float, ...] = ()
    """Weight decays that a client may pick from; none: it has what its optimiser has."""
    max_epochs: int
    patience: int
    """Epochs without a gain on validation data after which training stops."""
    settings: str = ""
    """How a client trains, as text."""
    start: Start = lambda task, down, client: client
    finish: Finish = lambda task, down, carry: ({}, carry, {})
    received: Received = lambda task, down, client: client["w"]
    candidates: Candidates = lambda task, down, client: {"own": client["w"]}
    keeps_whole_model: bool = True


def local(
    *,
    grid: tuple[float, ...] | None = None,
    max_epochs: int = 100,
    patience: int = 15,
    **training: Unpack[TrainingArgs],
) -> Method:
    """Each client by itself; ``lr`` fixes its rate, else it picks one of ``grid``.

    A client trains on its own data and communicates nothing. It is what every method is set
    against. It helps a client with enough data, or with data unlike everybody else's. It does not
    help one with few examples.

    Args:
        grid: learning rates that a client may pick from on its validation data, if lr is not given.
        max_epochs: epochs after which training ends.
        patience: epochs without a gain on validation data after which it ends.
    """
    if "lr" in training:
        positive(lr=training["lr"])
    elif grid is not None and (not grid or min(grid) <= 0):
        raise GlocalError(f"grid must hold learning rates above 0, not {grid}.")
    rates = (float(training["lr"]),) if "lr" in training else tuple(map(float, grid or ()))
    positive_integers(max_epochs=max_epochs, patience=patience)
    by_epoch = schedule(training.get("schedule", "constant"))
    if isinstance(by_epoch, Plateau):
        raise GlocalError(
            "local cannot have a plateau schedule: a client alone keeps its best epoch on "
            "validation data; use step, inverse or cosine."
        )
    settings: TrainingArgs = {"batch_size": 10, "epochs": 1, **training, "lr": 1.0}
    opt = client_optimiser(**settings)
    recorded = in_force({**settings, **training})
    if "lr" not in training:
        recorded = (("grid", rates or GRID), *(pair for pair in recorded if pair[0] != "lr"))

    def init(task: Task, params: Params, key: Tensor) -> ClientState:
        w = task.init(key)
        first = rates[0] if rates else DEFAULTS["lr"]
        rate = torch.tensor(first, device=next(iter(w.values())).device)
        return {"w": w, "opt": opt.init(w), "lr": rate}

    def step(task: Task, down: Downlink, carry: Carry, batch: Batch, key: Tensor) -> Carry:
        grads, _ = task.grad(lambda w: task.loss(w, batch, key), carry["w"])
        if "decay" in carry:
            grads = tree.add(grads, carry["w"], carry["decay"])
        w, state = opt.update(grads, carry["opt"], carry["w"], carry["lr"] * down["lr"])
        return {**carry, "w": w, "opt": state}

    by_itself = LocalTraining(
        init=init,
        phases=(Phase("train", settings["epochs"], step),),
        opt=opt,
        rates=rates,
        max_epochs=max_epochs,
        patience=patience,
        batch_size=settings["batch_size"],
        schedule=by_epoch,
        settings=str(sorted(settings.items())),
        training=recorded,
    )
    return Method(local=by_itself, shared=nothing())
