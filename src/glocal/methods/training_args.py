"""The settings every method takes beside its own, and the local training they describe."""

from __future__ import annotations

import inspect
from typing import Any, TypedDict, Unpack, get_type_hints

from glocal.core import validation as fields
from glocal.core.errors import GlocalError, unknown
from glocal.core.spec import Call
from glocal.nn import optim
from glocal.slots.client import Local, Objective, minibatch_training, plain_loss


class TrainingArgs(TypedDict, total=False):
    """How a client trains. Every base takes these.

    Args:
        lr: learning rate of the clients' steps.
        batch_size: examples in a mini-batch; 0: all of the client's at once.
        epochs: passes over its data that a client makes in a round.
        momentum: how much of past steps goes on, below 1 (of sgd).
        weight_decay: strength of the pull to 0.
        nesterov: whether momentum looks ahead (of sgd).
        optimiser: sgd, adam or adamw.
        schedule: of the learning rate over rounds, as in step(0.99, 10), cosine(100) or, by
            validation loss, plateau(0.5).
        grad_clip: the largest norm of a mini-batch's gradient, to which longer ones are shortened.
    """

    lr: float
    batch_size: int
    epochs: int
    momentum: float
    weight_decay: float
    nesterov: bool
    optimiser: str
    schedule: str | Call
    grad_clip: float


_KINDS = get_type_hints(TrainingArgs)

DEFAULTS: TrainingArgs = {"lr": 0.1, "batch_size": 10, "epochs": 2}


def local_sgd(objective: Objective = plain_loss, **training: Unpack[TrainingArgs]) -> Local:
    """Local training by mini-batches with these settings."""
    settings: TrainingArgs = {**DEFAULTS, **training}
    local = minibatch_training(
        client_optimiser(**settings),
        epochs=settings["epochs"],
        batch_size=settings["batch_size"],
        objective=objective,
        schedule=schedule(settings.get("schedule", "constant")),
    )
    return local.replace(training=in_force(settings))


def in_force(settings: TrainingArgs) -> tuple[tuple[str, Any], ...]:
    """All settings of training, with the values that those have which were left out."""
    name = settings.get("optimiser", "sgd")
    defaults = {"optimiser": name, "schedule": "constant"}
    for key, how in inspect.signature(optim.CLIENT_OPTIMISERS[name]).parameters.items():
        if key in _KINDS:
            defaults[key] = how.default
    values = {**defaults, **settings}
    return tuple((key, values[key]) for key in _KINDS if key in values)


def with_adam(lr: float, training: TrainingArgs, steps: int | None) -> TrainingArgs:
    """Adam and batches of 64 by default; SGD where momentum is asked for, which Adam has not.

    It refuses epochs where ``steps`` says how many mini-batches a round has.
    """
    if steps is not None and "epochs" in training:
        raise GlocalError(
            f"epochs={training['epochs']} would do nothing, since steps={steps} is how many "
            "mini-batches a round has: give steps=none, or leave epochs out."
        )
    name = "sgd" if training.get("momentum") or training.get("nesterov") else "adam"
    settings: TrainingArgs = {"optimiser": name, "lr": lr, "batch_size": 64, "epochs": 1}
    settings |= training
    return settings


def client_optimiser(**training: Unpack[TrainingArgs]) -> optim.Optimizer:
    """The clients' optimiser: ``optimiser`` is sgd (default), adam or adamw."""
    name = training.get("optimiser", "sgd")
    if name not in optim.CLIENT_OPTIMISERS:
        raise unknown("optimiser", str(name), optim.CLIENT_OPTIMISERS)
    taken = ("lr", "weight_decay", "momentum", "nesterov")
    options: dict[str, Any] = {k: v for k, v in training.items() if k in taken}
    for option, value in options.items():
        fields.check(option, value, _KINDS[option])
    if name != "sgd":
        for option in ("momentum", "nesterov"):
            if options.pop(option, None):
                raise GlocalError(f"{option} belongs to sgd; {name} has its own: leave it out.")
    opt = optim.CLIENT_OPTIMISERS[name](**options)
    if "grad_clip" not in training:
        return opt
    fields.check("grad_clip", training["grad_clip"], float)
    return optim.clipped(opt, training["grad_clip"])


def schedule(text: str | Call) -> optim.Schedule:
    """``constant``, ``step(0.99,10)``, ``inverse(0.005)``, ``cosine(100)``, ``plateau(0.5)``."""
    return fields.build("schedule", optim.SCHEDULES, text)
