"""The synthetic data of a method and its evaluation: the figures that a run reports."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glocal.core import rng
from glocal.core.errors import GlocalError
from glocal.core.progress import NO_TICK, Tick
from glocal.core.tensor_files import load_tensors, save_tensors
from glocal.core.types import Params
from glocal.data.federation import Federation
from glocal.evaluation import synthetic_data
from glocal.experiment import contact_sheet as sheet
from glocal.nn.task import Task
from glocal.training.loop import Training
from glocal.training.run_state import Progress

MADE = -3
"""Child of the seed's key for what is drawn at the end (trainings use those from 0 up)."""

STEPS = 1000
"""About how many mini-batches the classifier of real data is trained on."""

MOST = 5000
"""Examples of clients that the privacy checks look at, drawn at random where there are more."""


REAL = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
"""Kinds of numbers that a file of examples may hold."""


@dataclass(frozen=True)
class Made:
    """Labelled examples, and what is to be said of them."""

    x: Tensor
    y: Tensor
    figures: dict[str, Any]


def made(
    training: Training,
    progress: Progress,
    fed: Federation,
    tick: Tick = NO_TICK,
) -> Made | None:
    """The synthetic data, evaluated on ``fed``; None if the method generates none."""
    draw = training.method(progress).server_half.draw
    if draw is None:
        return None
    x, y = draw(progress.server, training.setting, training.key(MADE, 0))
    return Made(x, y, figures(training.task, fed, x, y, training.key(MADE, 1), tick))


def figures(
    task: Task,
    fed: Federation,
    x: Tensor,
    y: Tensor,
    key: Tensor,
    tick: Tick = NO_TICK,
) -> dict[str, Any]:
    """A classifier on the examples alone, their distance from test data, what they give away."""
    first, total = synthetic_data.STEPS, synthetic_data.STEPS + STEPS
    learned = synthetic_data.train_classifier(
        task, x, y, rng.fold(key, 0), tick=lambda done: tick(done, total)
    )
    w = learned.w
    tested, validated = (
        [synthetic_data.accuracy(task, w, *getattr(fed[k], part)) for k in range(len(fed))]
        for part in ("test", "val")
    )
    trained = fed.x[fed.train.rows], fed.y_train[fed.train.rows]
    real = synthetic_data.train_classifier(
        task,
        *trained,
        rng.fold(key, 1),
        steps=STEPS,
        tick=lambda done: tick(first + done, total),
    ).w
    central = getattr(fed, "central", None)
    test = central or (fed.x[fed.test.rows], fed.y[fed.test.rows])
    whose = "the central test set" if central else "all clients' test data"
    held = torch.cat([fed.x[fed.test.rows], fed.x[fed.val.rows]])
    members, others = (
        some[rng.permutation(rng.fold(key, 2 + i), len(some))[:MOST]]
        for i, some in enumerate((trained[0], held))
    )
    return {
        "examples": len(x),
        "accuracy": sum(tested) / len(tested),
        "val_accuracy": sum(validated) / len(validated),
        "classifier": {
            "steps": learned.steps,
            "loss": learned.loss,
            "converged": learned.converged,
        },
        **({"central_accuracy": synthetic_data.accuracy(task, w, *central)} if central else {}),
        **_distance(task, real, x, test[0]),
        "frechet_from": whose,
        "features": "penultimate layer of the run's model, trained on all clients' training data "
        f"({len(trained[0])} examples; accuracy on {whose}: "
        f"{synthetic_data.accuracy(task, real, *test):.3f})",
        "nearness": synthetic_data.nearness(x, members, others, rng.fold(key, 4)),
        "membership": synthetic_data.membership(x, members, others),
    }


def _distance(task: Task, real: Params, x: Tensor, test: Tensor) -> dict[str, Any]:
    """The Fréchet distance; or none, and why: what was made is kept all the same."""
    try:
        far = synthetic_data.frechet(
            synthetic_data.features(task, real, x), synthetic_data.features(task, real, test)
        )
    except GlocalError as error:
        return {"frechet": None, "frechet_missing": str(error)}
    return {"frechet": far}


def load(file: Path, fed: Federation) -> tuple[Tensor, Tensor]:
    """Labelled examples from a file, ``x`` and ``y``, where ``fed`` is.

    Refuses what cannot be read, and what are no examples like the clients'.
    """
    if file.is_dir():
        inside = file / "synthetic.safetensors"
        hint = f"the file in it, {inside}" if inside.is_file() else "a .safetensors file"
        raise GlocalError(f"{file} is a folder, and examples are in a file: give {hint}.")
    remedy = "give a .safetensors file with examples in x and their labels in y"
    found = load_tensors(file, f"{file} cannot be read", remedy)
    x, y = found.get("x"), found.get("y")
    if x is None or y is None or not x.numel() or not y.numel():
        raise GlocalError(f"{file} has no examples: they belong in x, and their labels in y.")
    return examples_like(fed, x, y, str(file))


def examples_like(fed: Federation, x: Tensor, y: Tensor, what: str) -> tuple[Tensor, Tensor]:
    """The examples where ``fed`` is; refuses what are no examples like the clients'."""
    if x.shape[1:] != fed.x.shape[1:] or y.shape != (*x.shape[:1], *fed.y.shape[1:]):
        raise GlocalError(
            f"{what} does not fit the data: x is {_size(x)} and y is {_size(y)}, and an example "
            f"of the clients is {_size(fed.x[0])}; give examples like theirs, with their labels."
        )
    tokens = not fed.x.is_floating_point()
    if x.dtype not in (WHOLE if tokens else REAL):
        wanted = "integers" if tokens else "floating-point numbers"
        raise GlocalError(f"{what} does not fit the data: x must be {wanted}, not {x.dtype}.")
    if y.dtype not in WHOLE or int(y.min()) < 0 or int(y.max()) >= fed.classes:
        raise GlocalError(
            f"{what} does not fit the data: y must be labels from 0 to {fed.classes - 1}."
        )
    x, y = x.to(fed.x), y.to(fed.y)
    if tokens and (int(x.min()) < 0 or int(x.max()) > int(fed.x.max())):
        raise GlocalError(f"{what} does not fit the data: x has tokens that no client has.")
    if not bool(torch.isfinite(x).all()):
        raise GlocalError(f"{what} is of no use: x holds values that are NaN or infinite.")
    return x, y


def _size(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "1"


def save(made: Made, classes: int, folder: Any) -> None:
    """``synthetic.safetensors``, and ``synthetic.png`` where the examples are images."""
    save_tensors(folder / "synthetic.safetensors", {"x": made.x, "y": made.y})
    if made.x.dim() == 4 and made.x.shape[1] in (1, 3):
        pixels = sheet.block(sheet.enlarged(made.x), made.y, classes, 10)
        sheet.write_png(folder / "synthetic.png", pixels)
