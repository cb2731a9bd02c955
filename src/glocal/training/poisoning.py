"""Training data that malicious clients changed, and whether their backdoor works."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from glocal.core import rng, tree
from glocal.core.errors import GlocalError
from glocal.core.types import Params
from glocal.core.validation import integer, real
from glocal.data.federation import Federation
from glocal.data.split import keyed
from glocal.engines.base import Engine, padded_rows
from glocal.nn.task import Task

Poison = Callable[[Federation, Sequence[int]], Federation]
"""The federation with the training data of these clients changed."""


@dataclass(frozen=True)
class Trigger:
    """A bright square of ``size`` pixels in the lower right corner that should mean ``target``."""

    target: int
    size: int

    def __post_init__(self) -> None:
        integer(self.target, "a backdoor's target", 0)
        integer(self.size, "a backdoor's size in pixels", 1)

    def check(self, fed: Federation) -> None:
        """Raises unless the data are images on which there is room, and the target a class."""
        x = fed.x
        if x.dim() not in (3, 4) or not x.is_floating_point():
            raise GlocalError(
                "a backdoor is a pattern on images [n, height, width] or [n, channels, height, "
                f"width], and this data is {list(x.shape)} of {x.dtype}: use another attack, such "
                "as label-flip."
            )
        if self.size > min(x.shape[-2:]):
            raise GlocalError(
                f"a backdoor of {self.size} pixels has no room on images of {x.shape[-2]} × "
                f"{x.shape[-1]}: give a smaller size=."
            )
        if self.target >= fed.classes:
            raise GlocalError(
                f"a backdoor's target must be one of the {fed.classes} classes, 0 to "
                f"{fed.classes - 1}, not {self.target}."
            )

    def stamped(self, x: Tensor, rows: Tensor) -> Tensor:
        """The data with the square on these rows, as bright as the brightest pixel there is."""
        images = x[rows]
        images[..., -self.size :, -self.size :] = x.max()
        return x.index_put((rows,), images)


def flipped(fed: Federation, clients: Sequence[int]) -> Federation:
    """Labels y as C − 1 − y, in what these clients train on."""
    rows = _training_rows(fed, clients)
    return replace(fed, y_train=fed.y_train.index_put((rows,), fed.classes - 1 - fed.y_train[rows]))


def backdoored(mark: Trigger, rate: float) -> Poison:
    """The trigger on a share ``rate`` of these clients' training images, and its target as label.

    The draw is keyed by row, so a row has the mark in every fold that trains on it.
    """
    if not 0 < real(rate, "a backdoor's rate") <= 1:
        raise GlocalError(f"a backdoor's rate must be above 0 and up to 1, not {rate!r}.")

    def poison(fed: Federation, clients: Sequence[int]) -> Federation:
        mark.check(fed)
        rows = _training_rows(fed, clients)
        seed = int(fed.describe.get("seed", 0))
        drawn = rng.uniform(rng.fold(keyed(seed, "backdoor").to(rows.device), rows), ())
        rows = rows[drawn < rate]
        label = torch.full_like(fed.y_train[rows], mark.target)
        return replace(
            fed, x=mark.stamped(fed.x, rows), y_train=fed.y_train.index_put((rows,), label)
        )

    return poison


def success(
    mark: Trigger, task: Task, fed: Federation, engine: Engine, models: Params, ids: Tensor
) -> list[float]:
    """For each client of ``ids``: the share of stamped test images taken for the target.

    Each client's images are its own, and so is its model. Those that are of that class anyway are
    left out; NaN for a client that has no others.
    """
    x = mark.stamped(fed.x, fed.test.rows)
    shares = []
    for i in range(len(ids)):
        one = ids[i : i + 1]
        rows, _ = padded_rows(fed.test, one)
        predict, model = task.of_clients(one).example_logits, tree.row(models, [i])
        logits = engine.evaluate(predict, model, x, fed.y, rows)["logits"][0]
        others = fed.y[rows[0]] != mark.target
        fooled = logits.argmax(-1)[others] == mark.target
        shares.append(float(fooled.float().mean()) if len(fooled) else math.nan)
    return shares


def _training_rows(fed: Federation, clients: Sequence[int]) -> Tensor:
    return torch.cat([fed.train.of(k) for k in clients])
