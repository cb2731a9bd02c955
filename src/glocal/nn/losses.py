"""Losses: one for each example, from what the model puts out and labels as training sees them.

With ``r = prediction − y``, all in standard deviations of the label (:mod:`glocal.core.target`)::

    squared  r²/2        absolute  |r|        huber  r²/2 where |r| ≤ 1, |r| − 1/2 beyond
    poisson  e^o − y·o + y·log y − y

That of counts, in units of their mean ``m``, is half the deviance of a Poisson variable with mean
``m·e^o``, over ``m``: its negative log-likelihood but for constants, and 0 where ``e^o = y``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from glocal.core.errors import GlocalError
from glocal.core.padding import IGNORED, over_positions
from glocal.core.target import TASKS, linked

Losses = Callable[[Tensor, Tensor], Tensor]
"""Maps logits and labels to one loss per example; of a sequence, over the positions that count."""


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy of each example; of a sequence, the mean over its positions that count."""
    if y.dim() == 1:
        return functional.cross_entropy(logits, y, reduction="none")
    by_position = logits.transpose(1, -1)
    each = functional.cross_entropy(by_position, y, reduction="none", ignore_index=IGNORED)
    return over_positions(each, y)


def squared(task: str, output: Tensor, y: Tensor) -> Tensor:
    """Half the square of the error."""
    return 0.5 * (linked(task, output) - y).square()


def absolute(task: str, output: Tensor, y: Tensor) -> Tensor:
    """The error's magnitude."""
    return (linked(task, output) - y).abs()


def huber(task: str, output: Tensor, y: Tensor) -> Tensor:
    """Squared up to an error of 1, then linear (Huber, Ann. Math. Statist. 1964)."""
    return functional.huber_loss(linked(task, output), y, reduction="none")


def poisson(task: str, output: Tensor, y: Tensor) -> Tensor:
    """Of a count with the mean ``e^o``."""
    return output[..., 0].exp() - y * output[..., 0] + torch.xlogy(y, y) - y


OF_NUMBERS = {"squared": squared, "absolute": absolute, "huber": huber, "poisson": poisson}


def named(loss: str | None, task: str) -> Losses:
    """A loss by its name; the task's default where none is given."""
    names = TASKS[task].losses
    name = names[0] if loss is None else loss
    if name not in names:
        raise GlocalError(f"{name} is no loss of {task}: use {' or '.join(names)}.")
    return cross_entropy if name == "cross_entropy" else _of_numbers(name, task)


@cache  # one object for one loss: trainings are told apart by what they are made of
def _of_numbers(name: str, task: str) -> Losses:
    return partial(OF_NUMBERS[name], task)


def resolve(given: str | Losses | None, task: str) -> Losses:
    """One loss per example: by name, the task's own, or a function of the user's."""
    if given is None or isinstance(given, str):
        return named(given, task)
    if isinstance(given, type):
        name = given.__name__
        made = f"{name}(reduction='none')" if issubclass(given, nn.Module) else f"{name}()"
        raise GlocalError(f"losses={name} is a class, and takes one of it: write {made}.")
    if isinstance(given, nn.Module) and getattr(given, "reduction", "none") != "none":
        name = type(given).__name__
        raise GlocalError(
            f"losses={name}() gives one loss for all examples, and there must be one for each: "
            f"write {name}(reduction='none')."
        )
    return given


LOSSES = ("cross_entropy", *OF_NUMBERS)
"""All names."""
