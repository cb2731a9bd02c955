"""What one repeat is done with: a split of the federation, the task, the engine, the baseline."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from glocal import engines
from glocal.core import rng
from glocal.core.errors import GlocalError, shown, unknown
from glocal.core.own_code import is_own, load_own
from glocal.core.spec import split_plus
from glocal.core.threads import one_thread
from glocal.core.types import Params
from glocal.core.validation import build, not_negative, positive
from glocal.data.federation import Federation
from glocal.data.schema import needs_classes
from glocal.engines.base import Engine
from glocal.engines.devices import named as named_devices
from glocal.engines.grouped import Grouped
from glocal.evaluation import measures
from glocal.evaluation.evaluate import Outcome, outcomes
from glocal.evaluation.pooling_test import worth_evaluating
from glocal.experiment import modules, unequal
from glocal.experiment.adaptation import techniques
from glocal.experiment.baseline import (
    DECAYS,
    known_by,
    train_baselines,
)
from glocal.experiment.config import Config
from glocal.experiment.early_stopping import Selected
from glocal.experiment.fingerprint import digest as code_digest
from glocal.methods import registry, resolve
from glocal.methods.local import LocalTraining
from glocal.nn.architectures import Architectures, parts
from glocal.nn.augment import AUGMENTATIONS, chain
from glocal.nn.losses import LOSSES
from glocal.nn.losses import resolve as resolve_loss
from glocal.nn.precision import PRECISIONS
from glocal.nn.task import Augment, Task, try_out, try_vectorised
from glocal.slots.method import Method
from glocal.training.attacks import Attack, parse
from glocal.training.availability import availability
from glocal.training.client_state.placement import check_place
from glocal.training.divergence import check_policy
from glocal.training.stragglers import stragglers

if TYPE_CHECKING:
    from glocal.training.checkpoint import CheckpointWriter
    from glocal.training.client_state.placement import Storage
    from glocal.training.client_state.store import ClientStore

ONE_THREAD = 30_000
"""Parameters below which threads of a CPU wait for each other longer than they compute."""


@dataclass(frozen=True)
class Setup:
    """One repeat before it is trained: the settings and what they came to."""

    config: Config
    fed: Federation
    task: Task
    engine: Engine
    seed: int
    repeat: int
    digest: str
    """Of the data, the model as it begins, the seed, the device and the engine."""
    objects: tuple[object, ...]
    """The caller's objects that the digest does not tell: losses, augmentation, model."""
    model_name: str

    @property
    def metric(self) -> str:
        """The name of what better off is measured by."""
        return measures.of_task(self.task).name

    @property
    def measured_by(self) -> str:
        """The metric as a text that is equal for equal ones: a function of the user's has code."""
        given = self.config.metric
        own = load_own(str(given), "metric") if is_own(given) else given
        return f"{self.metric} {code_digest(own)}" if callable(own) else self.metric

    @property
    def scored(self) -> bool:
        """Whether clients alone are also cross-validated, to find the best they can do."""
        return self.config.baseline == "best"

    def alone(self, client: LocalTraining) -> LocalTraining:
        """How clients train alone here: at their best, they may pick a weight decay too.

        Unless they were given one. A federation chooses no weight decay, so without the best alone
        its clients do not either.
        """
        picks = self.scored and "weight_decay" not in client.settings
        return replace(client, decays=client.decays or DECAYS) if picks else client

    def baseline_text(self, client: LocalTraining) -> str:
        """How clients train alone here, as a text that is equal for equal settings."""
        flags = f"{' refitted' * self.config.tune}{' scored' * self.scored}"
        if self.metric != "accuracy":
            flags += f" by {self.measured_by}"  # which chooses rate and epoch
        return known_by(self.alone(client)) + flags

    def key(self, client: LocalTraining) -> str:
        """A text that is equal, while ``objects`` live, where a baseline would come out equal."""
        pool = str(worth_evaluating(self.fed))  # whether it was evaluated on all clients' examples
        objects = (str(id(part)) for part in self.objects)
        about = (self.measured_by, self.baseline_text(client))
        return " ".join([self.digest, pool, *objects, *about])

    @property
    def small(self) -> bool:
        """Whether one thread trains this as fast as many."""
        few = self.task.size < ONE_THREAD
        return few and self.engine.name == "vectorised" and self.fed.x.device.type == "cpu"

    def title(self, what: str) -> str:
        """What a progress bar says."""
        several = self.config.repeats
        return f"{what} ({self.repeat + 1} of {several})" if several > 1 else what

    def threads(self) -> AbstractContextManager[None]:
        """One thread for small models, as many as there were for the rest."""
        return one_thread() if self.small else nullcontext()


def make(config: Config, fed: Federation, repeat: int) -> Setup:
    """The ``repeat``-th split and seed; the first is the caller's own."""
    devices, seed = named_devices(config.device), config.seed
    device = devices[0]
    if repeat:
        fed = fed.fold(repeat)
        seed = rng.seed_of(rng.fold(rng.key(seed), repeat))
    built = {
        name: modules.built(each, fed, seed, device)
        for name, each in unequal.models_of(config.model).items()
    }
    first = next(iter(built.values()))
    if config.init is not None:
        unequal.check_init(built)
        modules.load_weights(first.module, config.init)
    for what in ("new_test", "attack"):
        if getattr(config, what):
            needs_classes(fed, what)
    losses = resolve_loss(config.losses, fed.target.task)
    metric = measures.default(fed.target) if config.metric is None else config.metric
    measures.check_fits(metric, fed, config.same)
    measure = measures.measure(metric, fed.target)
    augment, precision = augmentation(config.augment), config.precision
    how: dict[str, Any] = {"augment": augment, "precision": precision, "losses": losses}
    how |= {"target": fed.target, "metric": measure}
    if len(built) == 1:
        task = Task(first.module, fresh=first.fresh, **how)
    else:
        task = unequal.task(built, config.assign, fed, how)
    task, fed = task.to(device), fed.to(device)
    weights = hashlib.sha256("|".join(each.label for each in built.values()).encode())
    for part in parts(task):
        try_out(part, fed.x, fed.y)
        for leaf in part.params.values():
            weights.update(leaf.cpu().numpy().tobytes())
    of_parts = tuple(_on_devices(config.engine, part, fed, devices) for part in parts(task))
    engine = of_parts[0]
    if isinstance(task, Architectures):
        weights.update(task.of_client.numpy().tobytes())
        engine = Grouped(of_parts)
    # The engine with its settings: one that compiles long runs is not one that never does.
    digest = f"{fed.fingerprint} {weights.hexdigest()} {seed} {device} {engine!r}"
    if precision != "single":
        digest += f" {precision}"
    if isinstance(config.augment, str):
        digest += f" {config.augment}"
    given = [each.given for each in built.values()]
    objects = tuple(
        None if isinstance(part, str) else part
        for part in (losses, config.augment, *given, None if isinstance(metric, str) else metric)
    )
    name = unequal.written(config.model, built)
    return Setup(config, fed, task, engine, seed, repeat, digest, objects, name)


def _on_devices(
    given: str | Engine, task: Task, fed: Federation, devices: Sequence[torch.device]
) -> Engine:
    """The engine; of several devices, one for each."""
    each = [_engine(given, task, fed, device) for device in devices]
    return each[0] if len(each) == 1 else engines.Devices(tuple(each), tuple(devices))


def _engine(given: str | Engine, task: Task, fed: Federation, device: torch.device) -> Engine:
    """The engine, where the model can be trained by it."""
    if isinstance(given, type):
        name = given.__name__
        raise GlocalError(f"{name} is a class, and engine= takes one of it: write {name}().")
    own = hasattr(given, "round") and hasattr(given, "name")
    engine: Engine = given if own else engines.resolve(given, task, device)  # type: ignore[assignment, arg-type]
    if isinstance(engine, engines.Vectorised):
        try:
            try_vectorised(task, fed.x, fed.y)
        except GlocalError:
            if engine.short is None:
                raise
            return engine.short
    return engine


def attack(given: str | Attack | None) -> Attack | None:
    """What malicious clients do."""
    if given is None or isinstance(given, Attack):
        return given
    if not isinstance(given, str):
        raise GlocalError(f"{shown(given)} is not text: write attack like 'sign-flip(share=0.2)'.")
    return parse(given)


def baseline(given: str | Method | None) -> LocalTraining:
    """How clients train the same model alone; refuses what is not ``local``."""
    if given == "none":
        raise GlocalError("this sets clients against what they have alone: use --baseline same.")
    spec = "local" if given in (None, "same", "best") else given
    method: Any = spec
    if isinstance(spec, str):
        known = registry.lookup(spec.partition("(")[0].partition("@")[0].strip())
        method = resolve(spec) if known is not None else None
    if not isinstance(method, Method) or not isinstance(method.local, LocalTraining):
        raise GlocalError(
            "the baseline must be same, best, none, or local with settings: local(lr=0.1)."
        )
    return method.local


def augmentation(given: str | Augment | None) -> Augment | None:
    """``crop(4)+flip`` as a keyed augmentation."""
    if not isinstance(given, str):
        return given
    return chain(*(build("augmentation", AUGMENTATIONS, part) for part in split_plus(given)))


def check_names(config: Config) -> None:
    """Refuse what is named and does not exist; nothing of this depends on the data."""
    attack(config.attack)
    techniques(config.adapt)
    availability(config.availability)
    stragglers(config.stragglers)
    if config.baseline != "none":
        baseline(config.baseline)
    check_place(config.states)
    check_policy(config.diverged)
    if config.metric is not None:
        measures.check(config.metric)
    if isinstance(config.losses, str) and config.losses not in LOSSES:
        raise unknown("loss", config.losses, LOSSES)
    not_negative(join_cost=config.join_cost, personalise_cost=config.personalise_cost)
    if config.longest_update is not None:
        positive(longest_update=config.longest_update)
    if config.same is not None:
        not_negative(same=config.same)
        measures.check_same(config.same, config.metric)
    if config.precision not in PRECISIONS:
        raise unknown("precision", config.precision, PRECISIONS)


_BASELINES: OrderedDict[str, tuple[Selected[ClientStore], Outcome, object]] = OrderedDict()
"""The last few, so that methods compared on one federation share theirs."""

KEPT = 32


def measured(
    setup: Setup,
    client: LocalTraining,
    tick: Callable[[int, int], None],
    keeper: CheckpointWriter | None = None,
    storage: Storage | None = None,
) -> tuple[Selected[ClientStore], Outcome]:
    """The local baseline, trained once for a federation, a model and a seed."""
    return measured_all([setup], client, tick, keeper, storage)[0]


def measured_all(
    several: Sequence[Setup],
    client: LocalTraining,
    tick: Callable[[int, int], None],
    keeper: CheckpointWriter | None = None,
    storage: Storage | None = None,
) -> list[tuple[Selected[ClientStore], Outcome]]:
    """The local baselines of several repeats, side by side; those that are known are not trained.

    Of a single one, the models may be anywhere (``storage``); of several they are in memory.
    """
    first, keys = several[0], [setup.key(client) for setup in several]
    if any(key not in _BASELINES for key in keys):
        refit, scored = first.config.tune, first.scored
        task, engine, local = first.task, first.engine, first.alone(client)
        feds, seeds = [s.fed for s in several], [s.seed for s in several]
        where = (task, feds, engine, local, seeds, tick, keeper, storage)
        found = train_baselines(*where, refit=refit, scored=scored)
        for setup, key, baseline in zip(several, keys, found, strict=True):
            if baseline.models.place == "disk":  # a file may be large: gone with its baseline
                for other in [k for k, v in _BASELINES.items() if v[0].models.place == "disk"]:
                    del _BASELINES[other]
            _BASELINES[key] = (baseline, _evaluated(setup, baseline), setup.objects)
    results = [_BASELINES[key][:2] for key in keys]
    while len(_BASELINES) > KEPT:
        _BASELINES.popitem(last=False)
    return results


def _evaluated(setup: Setup, baseline: Selected[ClientStore]) -> Outcome:
    def models(ids: Tensor) -> dict[str, Params]:
        return {"own": baseline.models.rows_of(ids)}

    where = (setup.task, setup.fed, setup.engine)
    return outcomes(*where, models, pool=worth_evaluating(setup.fed))


def is_measured(setup: Setup, client: LocalTraining) -> bool:
    """Whether the local baseline is there already."""
    return setup.key(client) in _BASELINES
