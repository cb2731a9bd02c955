"""The representation h: what goes into a named layer of a model, in a forward pass of training.

A model is cut in front of a layer that :func:`cut` names: what comes before makes h of an input,
and the rest predicts from h. Both come out of one forward pass, by a hook that is there while the
pass runs, so nothing of the model changes, and ``vmap`` and compilers see plain tensor operations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

from torch import Tensor, nn

from glocal.core.errors import GlocalError, unknown
from glocal.core.types import Params
from glocal.nn.task import Task


class _ReachedError(Exception):
    """The layer was reached: what comes after it is not needed."""


@contextmanager
def layer_inputs(module: nn.Module, at: str, *, stop: bool = False) -> Iterator[list[Tensor]]:
    """What goes into layer ``at`` while the module runs; with ``stop`` it runs no further."""
    found: list[Tensor] = []

    def note(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        found.append(inputs[0])
        if stop:
            raise _ReachedError

    hook = module.get_submodule(at).register_forward_pre_hook(note)
    try:
        yield found
    finally:
        hook.remove()


def logits_and_representation(
    task: Task, params: Params, x: Tensor, key: Tensor, at: str
) -> tuple[Tensor, Tensor]:
    """Logits in training mode, and what layer ``at`` read on the way to them."""
    with layer_inputs(task.module, at) as found:
        logits = task.logits(params, x, key)
    return logits, found[-1].float()


def representation(task: Task, params: Params, x: Tensor, key: Tensor, at: str) -> Tensor:
    """What layer ``at`` reads, in training mode; the layers after it are not run."""
    with layer_inputs(task.module, at, stop=True) as found, suppress(_ReachedError):
        task.logits(params, x, key)
    return found[-1].float()


def evaluated(task: Task, params: Params, x: Tensor, at: str) -> tuple[Tensor, Tensor]:
    """Logits in evaluation mode, and what layer ``at`` read on the way to them."""
    with layer_inputs(task.eval_module, at) as found:
        logits = task.predict(params, x)
    return logits, found[-1].float()


def cut(task: Task, private: Collection[str], at: str | None = None) -> str:
    """The layer that reads what the private layers make of an input; ``at`` names another.

    It is the layer after the first private ones, or the last layer where no other follows them.
    """
    by_layer: dict[str, bool] = {}
    for name in task.names:
        layer = name.rpartition(".")[0]
        by_layer[layer] = by_layer.get(layer, False) or name in private
    layers = [layer for layer in by_layer if layer]
    if at is not None:
        if at not in (name for name, _ in task.module.named_modules() if name):
            raise unknown("layer", at, layers)
        if at == next(iter(layers), None):
            raise GlocalError(
                f"no layer comes before {at} and makes a representation: name another."
            )
        return at
    first = next((i for i, layer in enumerate(layers) if by_layer[layer]), len(layers))
    others = (i for i in range(first, len(layers)) if not by_layer[layers[i]])
    after = next(others, len(layers) - 1)
    if after <= first:
        raise GlocalError(
            "the private layers make no representation that another layer reads: name the layer "
            "that reads one with at=, or share other layers."
        )
    return layers[after]


def check_cut(task: Task, x: Tensor, key: Tensor, at: str) -> tuple[Tensor, Tensor]:
    """Logits and representation of a batch; an error if layer ``at`` reads none."""
    try:
        with layer_inputs(task.module, at) as found:
            logits = task.logits(task.params, x, key)
    except IndexError:
        found = []
    if not found or not isinstance(found[-1], Tensor) or not found[-1].is_floating_point():
        raise GlocalError(
            f"layer {at} reads no representation of an input, a tensor of floats with one row for "
            "each example: name another with at=."
        )
    h = found[-1].float()
    if len(h) != len(x):
        raise GlocalError(
            f"what layer {at} reads has {len(h)} rows for {len(x)} examples: name another layer "
            "with at=."
        )
    return logits, h
