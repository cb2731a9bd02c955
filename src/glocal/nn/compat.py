"""Which of torch's layers a federated model can have, and what replaces the others.

:func:`check` raises an error that names the layer and the fix; :func:`convert` applies the fix.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.nn.utils.spectral_norm import SpectralNorm as _OldSpectralNorm

from glocal.core.errors import GlocalError
from glocal.nn.layers import LSTM, Dropout, SpectralConv2d, SpectralLinear, group_norm

Memo = dict[int, Any]
"""The copies that ``copy.deepcopy`` has made so far, by ``id``: it keeps tied parameters tied."""


class _Problem(NamedTuple):
    """Why a layer cannot be used, what the user can do, and a replacement if there is one."""

    why: str
    fix: str
    replace: Callable[[Memo], nn.Module] | None = None


def check(module: nn.Module) -> None:
    """Raise if a layer cannot be federated or vectorised, with the name of the layer and the fix.

    Layers are recognised by their types; what ``forward`` does is tested by running it
    (:func:`glocal.nn.task.try_out`).
    """
    for path, layer in module.named_modules():
        if problem := _diagnose(layer):
            raise _error(path, layer, problem)
    if not any(p.requires_grad for p in module.parameters()):
        raise GlocalError(
            f"model {type(module).__name__} has no trainable parameters: give it layers with "
            "parameters, or set requires_grad on those to be trained."
        )


def convert(module: nn.Module) -> nn.Module:
    """Copy the model, with layers that :func:`check` rejects replaced by ones it accepts.

    Weights are kept where they have the same meaning. Batch norm becomes group norm with its scale
    and shift, which is another function: train the model after it. Tied parameters stay tied.
    """
    memo: Memo = {}
    with torch.random.fork_rng(devices=[]):  # new layers initialise themselves
        for path, layer in module.named_modules():
            if problem := _diagnose(layer):
                if problem.replace is None:
                    raise _error(path, layer, problem)
                memo[id(layer)] = problem.replace(memo).train(layer.training)
    return copy.deepcopy(module, memo)


def _error(path: str, layer: nn.Module, problem: _Problem) -> GlocalError:
    where = f"layer {path!r}" if path else "the model"
    hint = ", or let glocal.nn.convert(model) do it" if problem.replace else ""
    return GlocalError(
        f"{where} ({type(layer).__name__}) cannot be federated: {problem.why}; {problem.fix}{hint}."
    )


def _diagnose(layer: nn.Module) -> _Problem | None:
    """The problem of one layer, without those of its children."""
    if any(is_lazy(p) for p in layer.parameters(recurse=False)):
        return _Problem("its shape is not known yet", "run the model on one batch first")
    if spectral := list(_spectral_weights(layer)):
        return _spectral_problem(layer, spectral)
    match layer:
        case _BatchNorm():
            return _Problem(
                "batch statistics mix in padding and its running statistics are state that no "
                "method trains",
                f"use nn.GroupNorm, such as {group_norm(layer.num_features)}",
                lambda memo: _adopt(
                    group_norm(layer.num_features, eps=layer.eps, affine=layer.affine), layer, memo
                ),
            )
        case _InstanceNorm(track_running_stats=True):
            return _Problem(
                "its running statistics are state that no method trains",
                "build it with track_running_stats=False",
                lambda memo: _adopt(
                    type(layer)(layer.num_features, eps=layer.eps, affine=layer.affine), layer, memo
                ),
            )
        case nn.AlphaDropout() | nn.FeatureAlphaDropout() if layer.p > 0:
            return _Problem(
                "its mask comes from a global generator, so engines would not agree",
                "use glocal.nn.Dropout, which does not keep the mean and variance of SELU networks",
            )
        case _DropoutNd() if layer.p > 0:
            channels = not isinstance(layer, nn.Dropout)
            return _Problem(
                "its mask comes from a global generator, so engines would not agree",
                f"use glocal.nn.Dropout({layer.p}{', channels=True' if channels else ''})",
                lambda memo: Dropout(layer.p, channels=channels),
            )
        case nn.LSTM():
            simple = not layer.proj_size
            return _Problem(
                "it cannot be vectorised over clients",
                "use glocal.nn.LSTM" + ("" if simple else " (without projection)"),
                (lambda memo: _adopt(_lstm(layer), layer, memo)) if simple else None,
            )
        case nn.RNNBase():
            return _Problem(
                "it cannot be vectorised over clients",
                f"write it from cells, as nn.{type(layer).__name__}Cell in a loop over time, or "
                "use glocal.nn.LSTM",
            )
        case nn.MultiheadAttention() if layer.dropout > 0:
            return _Problem(
                "its dropout mask comes from a global generator, so engines would not agree",
                "build it (or the Transformer layer around it) with dropout=0 and put "
                "glocal.nn.Dropout behind it",
            )
    return None


def _adopt(new: nn.Module, old: nn.Module, memo: Memo) -> nn.Module:
    """``new`` with copies of the parameters of ``old`` that it has names for."""
    for name, _ in list(new.named_parameters(recurse=False)):
        setattr(new, name, copy.deepcopy(getattr(old, name), memo))
    return new


def _lstm(old: nn.LSTM) -> LSTM:
    names = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout")
    return LSTM(**{name: getattr(old, name) for name in (*names, "bidirectional")})


def _spectral_weights(layer: nn.Module) -> Iterator[Any]:
    """For each torch spectral norm on a layer the parameter under it, None if ours differs."""
    for hook in layer._forward_pre_hooks.values():
        if isinstance(hook, _OldSpectralNorm):
            yield layer.weight_orig if hook.name == "weight" and hook.dim == 0 else None
    if isinstance(chains := getattr(layer, "parametrizations", None), nn.ModuleDict):
        for name, chain in chains.items():
            assert isinstance(chain, parametrize.ParametrizationList)
            for step in chain:
                if isinstance(step, _SpectralNorm):
                    only = name == "weight" and len(chains) == len(chain) == 1
                    yield chain.original if only and step.dim == 0 else None


def _spectral_problem(layer: nn.Module, weights: list[Any]) -> _Problem:
    why = "spectral_norm keeps vectors that it updates in forward"
    weight = weights[0] if len(weights) == 1 else None
    make: partial[Any]
    match layer:
        case nn.Linear() if weight is not None:
            make = partial(SpectralLinear, layer.in_features, layer.out_features)
        case nn.Conv2d() if weight is not None:
            names = ("stride", "padding", "dilation", "groups", "padding_mode")
            settings: Any = {name: getattr(layer, name) for name in names}
            sizes: Any = (layer.in_channels, layer.out_channels, layer.kernel_size)
            make = partial(SpectralConv2d, *sizes, **settings)
        case _:
            return _Problem(why, "apply glocal.nn.spectral_norm to the weight in forward instead")

    def replaced(memo: Memo) -> nn.Module:
        new: nn.Module = make()
        for name, old in (("weight", weight), ("bias", layer.bias)):
            setattr(new, name, copy.deepcopy(old, memo))
        return new

    return _Problem(why, f"use glocal.nn.{make.func.__name__}", replaced)
