"""The module that a setting names: by name, as a module, or as a function that returns one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from glocal.core.errors import GlocalError, shown
from glocal.core.own_code import is_own, load_own, told
from glocal.core.tensor_files import load_tensors
from glocal.data.federation import Federation
from glocal.experiment import memory_estimate as limits
from glocal.nn import models


@dataclass(frozen=True)
class Built:
    """A module, and where it comes from."""

    module: nn.Module
    fresh: Callable[[], nn.Module] | None
    """Builds it afresh, under the torch seed that is set around that."""
    label: str
    """A text that is another for another architecture."""
    given: object
    """What was asked for; of an own one in a file, what is there."""

    @property
    def name(self) -> str:
        """For people."""
        return self.given if isinstance(self.given, str) else type(self.module).__name__


def built(model: object, fed: Federation, seed: int, device: torch.device) -> Built:
    """The module for a federation's examples; one that memory has no room for is refused."""
    if is_own(model):
        model = load_own(str(model), "model")
    if isinstance(model, str):
        copied = fed.x.device != device
        moved = sum(t.nbytes for t in (fed.x, fed.y, fed.y_train)) if copied else 0
        limits.check_model(lambda: _named(model, fed, seed), device, moved, model)
    return Built(*_module(model, fed, seed), model)


def _module(
    model: object, fed: Federation, seed: int
) -> tuple[nn.Module, Callable[[], nn.Module] | None, str]:
    """The module, how to build it afresh (torch's seed is set around that), and a name for it."""
    if isinstance(model, str):
        # Each fresh initialisation is drawn from the seed that is set where it is asked for.
        again = lambda: _named(model, fed, torch.initial_seed())  # noqa: E731
        return _named(model, fed, seed), again, model
    if isinstance(model, nn.Module):
        return copy.deepcopy(model), None, repr(model)
    if callable(model):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            try:
                module = model()
            except (Exception, SystemExit) as error:  # whatever the user's function raises
                raise GlocalError(
                    f"the model cannot be built: {told(error)}; it must be "
                    "something that is called without arguments and returns a torch.nn.Module."
                ) from error
        if isinstance(module, nn.Module):
            return module, model, repr(module)
    raise GlocalError(
        "model must be a name such as 'mlp', a torch.nn.Module, or a function that returns one, "
        f"not {type(model).__name__}."
    )


def _named(model: str, fed: Federation, seed: int) -> nn.Module:
    shape = tuple(fed.x.shape[1:])
    spec = models.completed(model, fed.vocabulary)
    return models.build(spec, input_shape=shape, classes=fed.classes, seed=seed)


def load_weights(module: nn.Module, init: Mapping[str, Tensor] | str | Path) -> None:
    """Start from given weights: every name and shape must fit."""
    if isinstance(init, str | Path):
        problem = f"the weights in {shown(str(init))} cannot be read"
        init = load_tensors(init, problem, "give a .safetensors file")
    if not isinstance(init, Mapping):
        raise GlocalError(
            f"init={shown(init)} holds no weights: give a .safetensors file or a dict of tensors."
        )
    named = dict(module.named_parameters())
    missing, unknown = named.keys() - init.keys(), init.keys() - named.keys()
    if missing or unknown:
        raise GlocalError(
            f"the given weights do not fit the model: missing {_some(missing)}, unknown "
            f"{_some(unknown)}; give weights of the same model."
        )
    for key, parameter in named.items():
        if not isinstance(init[key], Tensor):
            raise GlocalError(f"the given weights are not usable: {key} is no tensor.")
        if parameter.shape != init[key].shape:
            raise GlocalError(
                f"the given weights do not fit the model: {key} has shape "
                f"{tuple(init[key].shape)}, and the model needs {tuple(parameter.shape)}."
            )
        if init[key].is_complex() or not torch.isfinite(init[key]).all():
            raise GlocalError(
                f"the given weights are not usable: {key} holds values that are complex, NaN or "
                "infinite; give those of a training that went well."
            )
        with torch.no_grad():
            parameter.copy_(init[key])


def _some(names: Iterable[str]) -> str:
    several = sorted(names)
    more = f" and {len(several) - 8} more" if len(several) > 8 else ""
    return f"{several[:8]}{more}" if several else "nothing"
