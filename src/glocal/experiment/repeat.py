"""One repeat of a method: the training that is over, and what it came to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.types import Params, Tree
from glocal.data.federation import Federation
from glocal.evaluation.communication import Traffic
from glocal.evaluation.evaluate import Models, Outcome, at_once, outcomes, pick, validated
from glocal.evaluation.scores import Scores
from glocal.evaluation.trials import pool_is_valid
from glocal.experiment.adapted_clients import Adapted
from glocal.experiment.attack_report import Struck
from glocal.experiment.setup import Setup
from glocal.experiment.synthetic import Made
from glocal.training import poisoning as poison
from glocal.training.client_state.offload import check_fits
from glocal.training.client_state.store import ClientStore
from glocal.training.loop import Training
from glocal.training.run_state import Progress


@dataclass(frozen=True)
class Trained:
    """A finished training, with everything needed to continue it or to evaluate it further."""

    training: Training
    progress: Progress
    picks: tuple[str, ...] | None = None
    """The candidate that each client picked before validation data was trained on, if it was."""

    def candidates(self) -> Models:
        """Every client's candidates; where they have picked, what they picked."""
        models, picks = self.training.models(self.progress), self.picks
        return models if picks is None else lambda ids: {"picked": _picked(models(ids), picks, ids)}

    @property
    def one_for_all(self) -> bool:
        """Whether all clients predict with the same model, or have the same to pick from."""
        same = self.picks is None or len(set(self.picks)) == 1
        return same and self.training.one_for_all(self.progress)

    def models(self, clients: Tensor | None = None) -> Params:
        """The models of some clients or all (chosen on their validation data), stacked."""
        t = self.training
        device = t.fed.x.device
        if clients is None:
            check_fits(len(t.fed) * 4 * t.task.size)
            clients = torch.arange(len(t.fed), device=device)
        ids = clients.to(device)
        return pick(t.task, t.fed, t.engine, self.candidates()(ids), ids)[0]


def _picked(candidates: dict[str, Params], picks: Sequence[str], ids: Tensor) -> Params:
    """Of each client's stacked candidates the one that it picked."""
    if len(candidates) == 1:
        return next(iter(candidates.values()))
    names = list(candidates)
    place = torch.tensor([names.index(picks[i]) for i in ids.tolist()], device=ids.device)
    client = torch.arange(len(ids), device=ids.device)
    stacked = tree.stack([candidates[name] for name in names])
    picked: Params = tree.map(lambda x: x[place, client], stacked)
    return picked


@dataclass(frozen=True)
class Repeat:
    """What one repeat of a method, or of being alone, came to."""

    outcome: Outcome
    val_score: Tensor
    """[clients] the score on validation data of the model each client uses, by rule its accuracy:
    what a choice goes by (:mod:`glocal.evaluation.scores`)."""
    engine: str
    val_loss: Tensor | None = None
    val_error: Tensor | None = None
    """[clients] the standard error of the score, where it is no accuracy."""
    cv_score: Tensor | None = None
    """[clients] the cross-validated score of clients alone, where the best alone is wanted."""
    cv_loss: Tensor | None = None
    left_out: dict[str, int] = field(default_factory=dict)
    """Of the best alone: how many clients had too much data for a family."""
    traffic: Traffic = field(default_factory=Traffic)
    model: Params = field(default_factory=dict)
    states: Tree = field(default_factory=dict)
    """``ids`` and what they keep, stacked; where that is on disk, ``ids`` alone."""
    history: list[dict[str, Any]] = field(default_factory=list)
    published: int = 0
    gradients: int = 0
    """Those that the clients computed in training."""
    seconds: float = 0.0
    """What training took, since it was begun or resumed: by the clock, so never the same twice."""
    together: dict[str, Any] | None = None
    """The new test, where it was asked for."""
    adapted: Adapted | None = None
    trained: Trained | None = field(default=None, repr=False)
    struck: Struck | None = None
    """What an attack came to, where there was one."""
    chosen: dict[str, Any] | None = None
    """What was chosen on validation data (``rate``, ``round``), or ``why_not``, where tuned."""
    kept: dict[str, int] | None = None
    """Where it may end early: the ``round`` that was kept, and how many were ``trained``."""
    privacy: dict[str, Any] | None = None
    """What was spent, and what that assumes."""
    examples: dict[str, Any] | None = None
    """The same of each client's examples, where these are protected."""
    made: Made | None = None
    """The synthetic data that the method generated, evaluated."""
    on_disk: ClientStore | None = field(default=None, repr=False)
    """What the clients keep, where that is on disk."""

    def figures(self) -> Repeat:
        """Without the models, which may be large: those of the first repeat are kept, no others."""
        return replace(self, trained=None, states={}, model={}, on_disk=None)


def contents(store: ClientStore, *, final: bool = False) -> tuple[Tree, ClientStore | None]:
    """What clients keep, with their ``ids``; of what is on disk, the ids alone, and the store.

    It is copied where it may still change: where it is not ``final``.
    """
    ids = store.seen.nonzero().flatten()
    if store.settled_file() is not None:
        return {"ids": ids}, store
    return {"ids": ids, **(store.rows if final and store.rows else store.saved()[1])}, None


def evaluate_trained(
    trained: Trained,
    fed: Federation,
    scores: Scores | None = None,
) -> tuple[Outcome, Scores]:
    """What every client's model does on ``fed``, and their validation scores, unless known.

    An attack may have changed the training data: clients are evaluated on their own data.
    """
    t, same = trained.training, trained.one_for_all
    where = (t.task, fed, t.engine, trained.candidates())
    outcome = outcomes(*where, pool=pool_is_valid(fed), one_for_all=same)
    if trained.picks is not None:
        outcome = replace(outcome, chosen=list(trained.picks))
    return outcome, scores or validated(*where, one_for_all=same)[0]


def struck(
    training: Training, setup: Setup, models: Callable[[Tensor], Params], stopped: int | None
) -> Struck | None:
    """What the attack came to, if there was one."""
    adversary = training.adversary
    if adversary is None:
        return None
    trigger, success = adversary.attack.trigger, None
    if trigger is not None:
        where = (setup.task, setup.fed, setup.engine)
        everyone = torch.arange(len(setup.fed), device=setup.fed.x.device)
        success = []
        for ids in torch.split(everyone, at_once(setup.task, setup.fed)):
            success += poison.success(trigger, *where, models(ids), ids)
    return Struck(adversary.attack.spec, adversary.clients, stopped, success)


def progress_of(
    training: Training, model: Params, ids: Tensor, states: Tree, stages: Sequence[str | None]
) -> Progress:
    """Where a training stood, from the server's model, the clients' states and its rounds' stages.

    What the server kept for itself (an optimiser's state, a weighting's, the count of its privacy)
    is not restored: this can be evaluated, adapted and trained anew, but not resumed.
    """
    task, device, stage, began = training.task, training.fed.x.device, 0, 0
    names = [stage.name for stage in training.plan.stages]
    if len(names) > 1 and stages:  # that of the last round: a goal may not have been reached
        stage, began = names.index(str(stages[-1])), sum(name != stages[-1] for name in stages)
    placed: Params = tree.to({k: model[k] for k in task.names}, device)
    begun = training.plan.stages[stage].method.begin(task, placed, training.setting)
    clients = ClientStore(len(training.fed), device)
    progress = Progress(begun, clients, Traffic(), stage, began, len(stages))
    progress.clients = training.store(progress).filled(ids, states)
    return progress
