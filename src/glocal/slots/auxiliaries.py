"""Auxiliary models that need no other inputs: a second head, and an autoencoder.

Liang et al.: *Think locally, act globally*, 2020, figure 1 (a) and (b).
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from glocal.core.errors import GlocalError
from glocal.core.types import Batch, Params
from glocal.core.validation import integer, not_negative
from glocal.nn.dense import dense, dense_init
from glocal.nn.models.shapes import WIDEST
from glocal.nn.task import Task, label_weights, weighted_mean
from glocal.slots.auxiliary import Auxiliary, Dimensions

PREFIX = "auxiliary"
"""What the names of an auxiliary's parameters begin with: no model has such a layer."""


def network(key: Tensor, inputs: int, hidden: int, outputs: int) -> Params:
    """The parameters of dense layers: one hidden layer of this width, or none where it is 0."""
    return dense_init(key, [inputs, *([hidden] if hidden else []), outputs], PREFIX)


def shared_settings(hidden: int, weight: float, rate: float, at: str | None) -> dict[str, Any]:
    """What an auxiliary has beside its network; raises unless this and its hidden layer can be."""
    integer(hidden, "hidden", 0, WIDEST)
    not_negative(weight=weight, rate=rate)
    return {"weight": weight, "rate": rate, "at": at}


def aux_head(
    weight: float = 1.0, *, hidden: int = 0, rate: float = 1.0, at: str | None = None
) -> Auxiliary:
    """A second head of the client's own, trained on the labels.

    It has the loss of the task. Where a label is a sequence, it predicts it position by position.

    It helps, if at all, where the shared layers forget what a client's labels need. It does not
    help to any purpose where all examples have labels: on digits validation data chose to do
    without it.

    Args:
        weight: by how much its gradient counts in the model's; at 0 it changes nothing.
        hidden: width of its hidden layer; 0 for none.
        rate: its learning rate, as a multiple of the client's.
        at: layer whose input is the representation; by default the first after the private ones.
    """
    how = shared_settings(hidden, weight, rate, at)

    def check(dims: Dimensions) -> None:
        if len(dims.outputs) > 1 and dims.h[:-1] != dims.outputs[:-1]:
            raise GlocalError(
                "aux-head predicts a label at each position, and the representation is of shape "
                f"{dims.h}, without positions: name another layer with at=."
            )

    def init(key: Tensor, dims: Dimensions) -> Params:
        inputs = dims.h[-1] if len(dims.outputs) > 1 else math.prod(dims.h)
        return network(key, inputs, hidden, dims.outputs[-1])

    def loss(task: Task, a: Params, h: Tensor, batch: Batch, key: Tensor) -> Tensor:
        at_positions = batch["y"].dim() > 1
        logits = dense(a, h if at_positions else h.flatten(1), PREFIX)
        return weighted_mean(task.losses(logits, batch["y"]), label_weights(batch))

    return Auxiliary(name="aux-head", init=init, loss=loss, check=check, **how)


def autoencoder(
    weight: float = 0.1, *, hidden: int = 64, rate: float = 1.0, at: str | None = None
) -> Auxiliary:
    """A decoder of the client's own, which reconstructs the inputs from the representation.

    The loss is the mean squared error over an example's numbers, as training sees them.

    It helps, if at all, where a client has many inputs and few labels. It does not help to any
    purpose where all examples have labels: on digits nothing was gained.

    Settings as of :func:`aux_head`.
    """
    how = shared_settings(hidden, weight, rate, at)

    def check(dims: Dimensions) -> None:
        if dims.schema.tokens:
            raise GlocalError(
                "autoencoder reconstructs numbers, and inputs are tokens here: use masked-tokens."
            )

    def init(key: Tensor, dims: Dimensions) -> Params:
        return network(key, math.prod(dims.h), hidden, math.prod(dims.schema.shape))

    def loss(task: Task, a: Params, h: Tensor, batch: Batch, key: Tensor) -> Tensor:
        error = dense(a, h.flatten(1), PREFIX) - batch["x"].flatten(1)
        return weighted_mean(error.square().mean(1), batch["weight"])

    return Auxiliary(name="autoencoder", init=init, loss=loss, check=check, **how)
