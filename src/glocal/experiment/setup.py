"""One repeat's working place: a split of the federation, the task and engine, the yardstick."""

from __future__ import annotations

import copy
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from glocal import engines
from glocal.core import rng, tree
from glocal.core.errors import GlocalError, shown
from glocal.data.federation import Federation
from glocal.engines.base import Engine
from glocal.evaluation.evaluate import Outcome, outcomes
from glocal.evaluation.summary import pool_is_valid
from glocal.experiment import memory_estimate as limits
from glocal.experiment.baseline import Baseline, measure
from glocal.methods import resolve
from glocal.methods.local import LocalTraining, local
from glocal.nn import models
from glocal.nn.task import Augment, Losses, Task, try_out, try_vectorised
from glocal.slots.method import Method

if TYPE_CHECKING:
    from glocal.training.checkpoint import Keeper
    from glocal.training.client_state.placement import Storage

ONE_THREAD = 30_000
"""Parameters below which threads of a CPU wait for each other longer than they compute."""

ModelLike = str | nn.Module | Callable[[], nn.Module]


@dataclass(frozen=True)
class Place:
    """One repeat's working place: a split of the federation, the task and the engine."""

    fed: Federation
    task: Task
    engine: Engine
    seed: int
    repeat: int
    digest: str
    """Of the data, the model as it begins, the seed, the device and the engine."""
    own: tuple[object, ...]
    """The caller's objects that the digest does not tell: losses, augmentation, model."""
    model_name: str

    @property
    def key(self) -> str:
        """Equal, while ``own`` lives, for places on which a yardstick would come out the same."""
        return " ".join([self.digest, *(str(id(part)) for part in self.own)])

    @property
    def small(self) -> bool:
        """Whether one thread trains this as fast as many."""
        few = tree.count(self.task.params) < ONE_THREAD
        return few and self.engine.name == "vectorised" and self.fed.x.device.type == "cpu"


def make(
    fed: Federation,
    model: ModelLike,
    seed: int,
    repeat: int,
    engine: str,
    device: str,
    init: Mapping[str, Tensor] | str | Path | None,
    losses: Losses,
    augment: Augment | None,
    precision: str = "single",
) -> Place:
    """The ``repeat``-th split and seed; the first is the caller's own."""
    where = _device(device)
    if repeat:
        fed = fed.fold(repeat)
        seed = rng.seed_of(rng.fold(rng.key(seed), repeat))
    if isinstance(model, str):
        moved = 0 if fed.x.device == where else sum(t.nbytes for t in (fed.x, fed.y, fed.y_train))
        limits.check_model(lambda: _named(model, fed, seed), where, moved, model)
    module, fresh, label = _module(model, fed, seed)
    if init is not None:
        load_weights(module, init)
    task = Task(module, losses=losses, augment=augment, fresh=fresh, precision=precision).to(where)
    fed = fed.to(where)
    try_out(task, fed.x, fed.y)
    runner = engines.resolve(engine, task, where)
    if isinstance(runner, engines.Vectorised):
        try:
            try_vectorised(task, fed.x, fed.y)
        except GlocalError:
            if runner.short is None:
                raise
            runner = runner.short
    digest = hashlib.sha256(label.encode())
    for leaf in task.params.values():
        digest.update(leaf.cpu().numpy().tobytes())
    own = (losses, augment, None if isinstance(model, str) else model)
    # The engine with its settings: one that compiles long runs is not one that never does.
    all_of_it = f"{fed.fingerprint} {digest.hexdigest()} {seed} {where} {runner!r}"
    if precision != "single":
        all_of_it += f" {precision}"
    name = model if isinstance(model, str) else type(module).__name__
    return Place(fed, task, runner, seed, repeat, all_of_it, own, name)


_YARDSTICKS: OrderedDict[str, tuple[Baseline, Outcome, object]] = OrderedDict()
"""The last few, so that methods compared on one federation share theirs."""

KEPT = 32


def measured(
    place: Place,
    alone: LocalTraining,
    tick: Callable[[int, int], None],
    keeper: Keeper | None = None,
    storage: Storage | None = None,
) -> tuple[Baseline, Outcome]:
    """The yardstick: trained once for a federation, a model and a seed."""
    key = _yardstick_key(place, alone)
    if key not in _YARDSTICKS:
        where = (place.task, place.fed, place.engine)
        yard = measure(*where, alone, place.seed, tick, keeper, storage)
        own = lambda ids: {"own": yard.models.rows_of(ids)}  # noqa: E731
        judged = outcomes(*where, own, pool=pool_is_valid(place.fed))
        others = [k for k, (other, *_) in _YARDSTICKS.items() if other.models.place == "disk"]
        for other in others if yard.models.place == "disk" else ():
            del _YARDSTICKS[other]  # its file may be large, and is gone with it
        _YARDSTICKS[key] = (yard, judged, place.own)
        while len(_YARDSTICKS) > KEPT:
            _YARDSTICKS.popitem(last=False)
    yard, judged, _ = _YARDSTICKS[key]
    return yard, judged


def is_measured(place: Place, alone: LocalTraining) -> bool:
    """Whether the yardstick is there already."""
    return _yardstick_key(place, alone) in _YARDSTICKS


def _yardstick_key(place: Place, alone: LocalTraining) -> str:
    return f"{place.key} {alone.label}"


def alone_of(yardstick: Method | str | None) -> LocalTraining:
    """How clients train alone, from what was asked for; refuses what is not ``local``."""
    method = (
        local()
        if yardstick is None
        else resolve(yardstick)
        if isinstance(yardstick, str)
        else yardstick
    )
    if not isinstance(method, Method) or not isinstance(method.local, LocalTraining):
        raise GlocalError("the yardstick must be local, with settings if you like: local(lr=0.1).")
    return method.local


def _module(
    model: ModelLike, fed: Federation, seed: int
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
                    f"the model cannot be built: {type(error).__name__}: {error}; it must be "
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
    return models.build(model, input_shape=shape, classes=fed.classes, seed=seed)


def load_weights(module: nn.Module, init: Mapping[str, Tensor] | str | Path) -> None:
    """Start from given weights: every name and shape must fit."""
    if isinstance(init, str | Path):
        from safetensors.torch import load_file

        try:
            init = load_file(init)
        except Exception as error:  # safetensors raises its own kinds
            raise GlocalError(
                f"the weights in {shown(str(init))} cannot be read ({str(error)[:200]}): give a "
                ".safetensors file."
            ) from error
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


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise GlocalError(f"unknown device {shown(name)}: use 'cpu' or 'cuda'.") from error
    if device.type not in ("cpu", "cuda"):
        raise GlocalError(f"device {name!r} is not supported: use 'cpu' or 'cuda'.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise GlocalError("there is no CUDA device here: use device='cpu'.")
    return device
