"""The clients of a training, wherever they are: the loop of rounds knows them by this alone.

:class:`LocalClients` are simulated: their data and states are here, and an engine trains them. In a
deployment they are elsewhere, and are asked over a network (:mod:`glocal.deploy.remote`).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.types import Downlink, Tree, Uplink
from glocal.engines.base import CohortRound
from glocal.training import evaluated_rounds
from glocal.training.client_state.store import ClientStore
from glocal.training.divergence import screen
from glocal.training.gate import too_long
from glocal.training.participation import participants

if TYPE_CHECKING:
    from glocal.training.loop import Training
    from glocal.training.run_state import Progress


@dataclass(frozen=True)
class Answers:
    """What a cohort sent, once its new states are settled."""

    used: Uplink
    """What is fit for the server."""
    sent: Uplink
    """All that was communicated."""
    norm: Tensor
    """That of all used updates together."""
    report: dict[str, Any] = field(default_factory=dict)
    """What the round's line says of those that were left out."""
    reached: Tensor | None = None
    """[cohort] who received what the server sent; None: all that answered."""
    gradients: int = 0
    """How many were computed."""


CohortSteps = Generator[CohortRound, tuple[Uplink, Tree], Answers]
"""A round's clients: asks whoever drives it to train those that are here, and ends with answers."""


class Clients(Protocol):
    """What the loop asks of clients. Where a run stands is in its ``progress``, never in here."""

    def store(self, training: Training, progress: Progress) -> ClientStore:
        """An empty place for what is kept of the clients in a stage, which checkpoints save."""

    def round(
        self, training: Training, progress: Progress, down: Downlink, ids: Tensor
    ) -> CohortSteps:
        """The cohort trains; the new states of those whose answer counts are settled."""

    def validate(self, training: Training, progress: Progress) -> dict[str, Any]:
        """What clients' validation data says, for the round's line."""


@dataclass(frozen=True)
class LocalClients:
    """Simulated clients: all data and states are here."""

    def store(self, training: Training, progress: Progress) -> ClientStore:
        """In the place that fits the size of their states."""
        state = training.make(progress, training.halves[progress.stage])(0)
        size = sum(leaf.nbytes for leaf in tree.leaves(state))
        clients, device = len(training.fed), training.fed.x.device
        absent = (1 - training.sampler.share(clients)) ** training.last
        rows = round(clients * (1 - absent))
        return training.storage.store(clients, size, device, progress.stage, rows)

    def round(
        self, training: Training, progress: Progress, down: Downlink, ids: Tensor
    ) -> CohortSteps:
        """Whoever drives it trains those present; malicious clients send what they like."""
        method, clients = training.method(progress), progress.clients
        cohort, present = ids, participants(training, ids, progress.round)
        computed = present.gradients(training, progress, down)
        took: dict[str, Any] = {"reached": present.reached, "gradients": computed}
        ids, said = present.ids, present.report(training.fed.names)
        if not len(ids):
            return replace(nobody(cohort), report=said, **took)
        work = training.round_of(progress, ids, training.round_key(progress), down)
        work = replace(work, workload=training.workload, part=present.part)
        _expect(training, progress, ids)
        uplink, states = yield work
        adversary, names = training.adversary, training.fed.names
        if adversary is not None:
            lr, key = method.server_opt.lr, training.attack_key(progress)
            uplink = adversary.sent(uplink, down["params"], training.task.params, lr, key)
        robust, policy = method.combine.robust, training.diverged
        screened = screen(uplink, states, policy, robust, adversary, names, progress.round)
        if training.longest_update is not None:
            far = too_long(screened.uplink.update, screened.uplink.n, training.longest_update)
            screened = screened.without(far, ids)
        kept = screened.keeps
        if kept is None:
            clients.scatter(ids, states)
        else:
            clients.scatter(ids[kept], tree.row(states, kept))
        said |= screened.report(names)
        return Answers(screened.uplink, uplink, screened.norm, said, **took)

    def validate(self, training: Training, progress: Progress) -> dict[str, Any]:
        """A point of the learning curve."""
        return evaluated_rounds.curve_point(training, progress)


def _expect(training: Training, progress: Progress, busy: Tensor) -> None:
    """The next cohort is known: states that are offloaded can be fetched while others train."""
    if progress.clients.place != "device" and progress.round + 1 < training.last:
        progress.clients.expect(training.cohort(progress, progress.round + 1), busy)


def nobody(ids: Tensor) -> Answers:
    """The answers of an empty cohort."""
    none = ids[:0]
    uplink = Uplink(none, n=none, update={}, loss=None, extra={})
    return Answers(uplink, uplink, torch.zeros(()))
