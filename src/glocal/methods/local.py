"""Each client alone: what federation has to beat.

Nothing travels. A client trains its own fresh initialisation on its own data and keeps its
optimiser from round to round, since there is no server to interrupt it. As a method on its own
(``local``) it is the yardstick of every comparison: :mod:`glocal.experiment.baseline` gives each
client its own learning rate from ``grid`` and stops early, both on the client's validation data.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Unpack

import torch
from torch import Tensor

from glocal.core.errors import GlocalError
from glocal.core.types import Batch, Carry, ClientState, Downlink, Params, Tree
from glocal.methods.training_args import TrainingArgs, client_optimiser, schedule
from glocal.nn.optim import Optimizer, Schedule, constant, positive
from glocal.nn.task import Task
from glocal.slots.client import Phase, check_counts
from glocal.slots.method import Method
from glocal.slots.sharing import nothing

GRID = (0.03, 0.1, 0.3)


def local(
    *,
    grid: tuple[float, ...] = GRID,
    max_epochs: int = 100,
    patience: int = 15,
    **training: Unpack[TrainingArgs],
) -> Method:
    """Each client alone; ``lr`` fixes the learning rate, else each client picks from ``grid``."""
    if "lr" in training:
        positive(lr=training["lr"])
    rates = (training["lr"],) if "lr" in training else tuple(grid)
    if not rates or min(rates) <= 0:
        raise GlocalError(f"grid must hold learning rates above 0, not {grid}.")
    for name, count in (("max_epochs", max_epochs), ("patience", patience)):
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise GlocalError(f"{name} must be a whole number of 1 or more, not {count}.")
    settings: TrainingArgs = {"batch_size": 10, "epochs": 1, **training, "lr": 1.0}
    alone = Alone(
        opt=client_optimiser(**settings),
        rates=rates,
        max_epochs=max_epochs,
        patience=patience,
        batch_size=settings["batch_size"],
        epochs=settings["epochs"],
        schedule=schedule(settings.get("schedule", "constant")),
        label=f"{sorted(settings.items())} {rates} {max_epochs} {patience}",
    )
    return Method(local=alone, shared=nothing())


@dataclass(frozen=True)
class Alone:
    """Local training that never meets a server; the learning rate is part of the client's state."""

    opt: Optimizer
    rates: tuple[float, ...]
    max_epochs: int
    patience: int
    batch_size: int = 10
    epochs: int = 1
    schedule: Schedule = field(default_factory=constant)
    label: str = ""
    """Equal for equal settings: a yardstick is measured once for each."""
    whole_model_in_state = True

    def __post_init__(self) -> None:
        check_counts(epochs=self.epochs, batch_size=self.batch_size)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """One."""
        return (Phase("train", self.epochs, self.step),)

    def init(self, task: Task, params: Params, key: Tensor) -> ClientState:
        """A fresh initialisation of the client's own."""
        w = task.init(key)
        rate = torch.tensor(self.rates[0], device=next(iter(w.values())).device)
        return {"w": w, "opt": self.opt.init(w), "lr": rate}

    def start(self, task: Task, down: Downlink, client: ClientState) -> Carry:
        """Go on where the client stopped."""
        return client

    def step(self, task: Task, down: Downlink, carry: Carry, batch: Batch, key: Tensor) -> Carry:
        """A step at the client's own rate."""
        grads, _ = task.grad(lambda w: task.loss(w, batch, key), carry["w"])
        w, opt = self.opt.update(grads, carry["opt"], carry["w"], carry["lr"] * down["lr"])
        return {"w": w, "opt": opt, "lr": carry["lr"]}

    def finish(self, task: Task, down: Downlink, carry: Carry) -> tuple[Params, ClientState, Tree]:
        """Nothing is sent."""
        return {}, carry, {}

    def received(self, task: Task, down: Downlink, client: ClientState) -> Params:
        """The client's own model: there is no other."""
        w: Params = client["w"]
        return w

    def candidates(self, task: Task, down: Downlink, client: ClientState) -> dict[str, Params]:
        """The client's own model."""
        return {"own": client["w"]}
