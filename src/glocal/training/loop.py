"""The rounds: broadcast, train the cohort, reduce."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from glocal.core import rng, tree
from glocal.core.errors import GlocalError
from glocal.core.types import Downlink, Params, Tree, Uplink
from glocal.data.federation import Federation
from glocal.data.schema import Schema
from glocal.data.split import Split
from glocal.engines.base import CohortRound, Engine, Workload
from glocal.evaluation.communication import NO_TRAFFIC, RoundTraffic, Traffic, round_traffic
from glocal.evaluation.evaluate import Models
from glocal.nn.architectures import Architectures
from glocal.nn.task import Task
from glocal.slots.client import Local
from glocal.slots.compression import MessageSize
from glocal.slots.method import Method, Plan
from glocal.slots.server_half import whole_model
from glocal.slots.weighting import Setting
from glocal.training import (
    best_round,
    evaluated_rounds,
    first_rounds,
    known_beforehand,
    plateau,
    secret_draws,
)
from glocal.training.attacks import Adversary
from glocal.training.availability import Availability
from glocal.training.client_state.placement import Storage
from glocal.training.client_state.store import ClientStore, FirstByGroup, FirstStates
from glocal.training.clients import Clients, LocalClients, nobody
from glocal.training.divergence import check_policy
from glocal.training.participation import answering
from glocal.training.run_state import Decision, Progress
from glocal.training.sampling import Sampler
from glocal.training.stragglers import Stragglers

COHORT, WORK, REDUCE, INIT, ATTACK, BEGIN, ALONE, PRESENCE = range(8)
"""Children of the seed's key: one for each thing a round draws."""

RoundSteps = Generator[CohortRound, tuple[Uplink, Tree], None]
"""A round that asks for its cohort to be trained, and is sent what the clients sent and kept."""


@dataclass(frozen=True)
class Training:
    """What does not change from round to round."""

    plan: Plan
    task: Task
    fed: Federation
    engine: Engine
    sampler: Sampler
    rounds: int
    seed: int
    validate_every: int | None = 0
    """It is evaluated each so many rounds and after the last; 0: after the last alone; None: by
    rule (:mod:`glocal.training.evaluated_rounds`)."""
    adversary: Adversary | None = None
    """Malicious clients, and what they send or train on instead."""
    diverged: str = "fatal"
    """What becomes of a client whose training is not finite (:mod:`glocal.training.divergence`)."""
    availability: Availability | None = None
    """Which sampled clients are there, and answer; None: all of them."""
    stragglers: Stragglers | None = None
    """Clients that finish part of a round; None: nobody is slow."""
    storage: Storage = field(default_factory=Storage)
    """Where clients' states are kept; changes nothing that comes out."""
    rate: float = 1.0
    """A factor on the learning rate that the server sends, beside the schedule's."""
    stop: int | None = None
    """The round after which it ends, while schedules are those of all ``rounds``."""
    by_client: bool = False
    """Whether validation is also recorded by client: its accuracy, and the candidate it picked."""
    validation: Mapping[int, Mapping[str, Any]] | None = None
    """What is recorded of validation by round, known beforehand where that data is trained on."""
    turns: tuple[int, ...] = ()
    """Where it is tuned: how many trainings are side by side while that is done, and then."""
    longest_update: float | None = None
    """Updates longer than so many times the median of their cohort are left out."""
    clients: Clients = field(default_factory=LocalClients)
    """Where the clients are: here, or elsewhere."""
    patience: int | None = None
    """It ends when it was evaluated so often without getting better, and its best round is kept
    (:mod:`glocal.training.best_round`)."""
    public_noise: bool = False
    """Whether the noise of privacy is that of the seed (:mod:`glocal.training.secret_draws`)."""

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise GlocalError(f"rounds must be 1 or more, not {self.rounds}.")
        check_policy(self.diverged)
        by_others = self.diverged == "clip" or self.longest_update is not None
        if by_others and any(s.method.privacy for s in self.plan.stages):
            raise GlocalError(
                "to clip or leave out by the others' lengths would let one client's data show in "
                "what becomes of another's update, which dp does not count: use diverged='skip', "
                "and leave longest_update out."
            )

    @cached_property
    def setting(self) -> Setting:
        """What the server knows beforehand."""
        clients = len(self.fed)
        scheme = getattr(self.sampler, "scheme", "of another kind")
        share = self.sampler.share(clients)
        schema, answers = Schema.of(self.fed), answering(self.availability, self.stragglers)
        return Setting(clients, share, self.rounds, scheme, schema, answers)

    @cached_property
    def last(self) -> int:
        """The last round: an earlier one than asked for, if by then a privacy budget is spent."""
        return min(self.affordable, self.stop or self.rounds)

    @cached_property
    def affordable(self) -> int:
        """The rounds that a privacy budget allows, of all that there are."""
        privacy = self.plan.stages[0].method.privacy
        return self.rounds if privacy is None else privacy.allowed(self.setting)

    @cached_property
    def _keys(self) -> dict[int, Tensor]:
        """The keys of each purpose that was asked for, one for each round, and some more."""
        return {}

    def key(self, purpose: int, number: int = 0, *path: int) -> Tensor:
        """The key for a purpose, and a round or what else it depends on.

        Those of all rounds are made at once: on a GPU, each by itself would be ten launches.
        """
        if purpose not in self._keys or number >= len(self._keys[purpose]):
            device = self.fed.x.device
            root = rng.fold(rng.key(self.seed, device), purpose)
            # Stages have one, too, and who joins later trains in rounds beyond the last.
            numbers = torch.arange(max(self.rounds, number) + 16, device=device)
            self._keys[purpose] = rng.fold(root, numbers)
        key = self._keys[purpose][number]
        for part in path:
            key = rng.fold(key, part)
        return key

    def round_key(self, progress: Progress) -> Tensor:
        """The key of the clients' training in the round that comes next."""
        if self.method(progress).example_privacy is None:
            return self.key(WORK, progress.round)
        return secret_draws.sampling_key(self, progress, WORK, progress.round)

    def attack_key(self, progress: Progress) -> Tensor:
        """The key of what malicious clients draw in the round that comes next."""
        return self.key(ATTACK, progress.round)

    def alone_key(self, progress: Progress) -> Tensor:
        """The key of what clients draw by themselves before their first round of a stage."""
        return self.key(ALONE, progress.stage)

    @property
    def presence_key(self) -> Tensor:
        """The key of who is there and who is slow."""
        return self.key(PRESENCE)

    @cached_property
    def halves(self) -> tuple[Local, ...]:
        """What clients do in each stage: the same objects in all rounds, as engines know them."""
        schema = self.setting.schema
        return tuple(stage.method.client_half(self.task, schema) for stage in self.plan.stages)

    @cached_property
    def before_first(self) -> tuple[Local | None, ...]:
        """What clients do by themselves in each stage before their first round, if anything."""
        schema = self.setting.schema
        return tuple(stage.method.before_first(self.task, schema) for stage in self.plan.stages)

    @cached_property
    def sizes(self) -> list[tuple[MessageSize, int]]:
        """What a client's update takes in each stage when sent, and the private parameters."""
        return known_beforehand.sizes(self)

    @cached_property
    def gradients(self) -> list[Tensor]:
        """[clients] of each stage: the gradients that a client computes in a round."""
        return first_rounds.gradients_of(self, self.halves)

    @cached_property
    def gradients_alone(self) -> list[Tensor]:
        """[clients] of each stage: the same of what a client does before its first round."""
        return first_rounds.gradients_of(self, self.before_first)

    @cached_property
    def spacing(self) -> int:
        """It is evaluated each so many rounds; 0: after the last alone."""
        every = self.validate_every
        return evaluated_rounds.spacing(self) if every is None else every

    @cached_property
    def training_rows(self) -> Split:
        """Those whose loss is recorded where the training is evaluated."""
        return evaluated_rounds.some_rows(self.fed.train, self.fed.val)

    def goes_on(self, progress: Progress) -> bool:
        """Whether there are rounds left."""
        return progress.round < self.last and not best_round.is_over(self, progress)

    @cached_property
    def workload(self) -> Workload:
        """What an engine may prepare for."""
        return known_beforehand.workload(self)

    def method(self, progress: Progress) -> Method:
        """The method of the stage the run is in."""
        return self.plan.stages[progress.stage].method

    def begin(self, params: Params) -> Progress:
        """Before the first round."""
        method, key = self.plan.stages[0].method, self.key(BEGIN, 0)
        state = method.begin(self.task, params, self.setting, key)
        progress = Progress(state, ClientStore(len(self.fed), self.fed.x.device), Traffic())
        progress.clients, progress.secret = self.store(progress), secret_draws.begun(self)
        progress.took_part = secret_draws.rounds_of_clients(self)
        return progress

    def store(self, progress: Progress) -> ClientStore:
        """An empty store for what is kept of the clients in a stage."""
        return self.clients.store(self, progress)

    def run(
        self, progress: Progress, on_round: Callable[[Progress], None] = lambda progress: None
    ) -> Progress:
        """All rounds that are left; the best of them, where it may end early."""
        while self.goes_on(progress):
            self.one_round(progress)
            on_round(progress)
        return best_round.at_best(self, progress)

    def one_round(self, progress: Progress) -> None:
        """One round, its cohort trained by the engine."""
        steps = self.steps(progress)
        work = next(steps, None)
        if work is not None:
            finish(steps, self.engine.round(work))

    def steps(self, progress: Progress) -> RoundSteps:
        """Broadcast, train the cohort, reduce; then the next stage if this one is over.

        Whoever drives it trains the cohort that it asks for; an empty one asks for nothing.
        """
        method, t = self.method(progress), progress.round
        down = self.broadcast(progress)
        ids = self.cohort(progress, t)
        line: dict[str, Any] = {"round": t + 1, "cohort": len(ids)}
        uplink, counts = nobody(ids).used, NO_TRAFFIC
        if len(ids):
            uplink, counts = yield from self._train(progress, down, ids, line)
        standing, before = method.weights.standing, None
        if standing is not None and len(uplink.ids):
            before = standing(progress.server["weighting"], uplink.ids)
        progress.server, weights = method.server_half.reduce(
            progress.server,
            uplink,
            self.setting,
            self.key(REDUCE, t),
            secret_draws.noise_key(self, progress, REDUCE, t),
        )
        decision = Decision(uplink.ids, weights, uplink.loss, before)
        progress.decision = decision if len(uplink.ids) else None
        progress.traffic.record(*counts)
        progress.round += 1
        progress.history.append(line)
        self._after(progress, line)

    def cohort(self, progress: Progress, number: int) -> Tensor:
        """The ids of those who take part in a round."""
        key = self.key(COHORT, number)
        if self.method(progress).privacy is not None:
            key = secret_draws.sampling_key(self, progress, COHORT, number)
        return self.sampler.cohort(len(self.fed), key)

    def broadcast(self, progress: Progress) -> Downlink:
        """What the server sends as the run stands."""
        down = self.method(progress).broadcast(progress.server, progress.round, self.setting)
        rate = self.rate * plateau.factor(self.method(progress), progress)
        return down if rate == 1.0 else {**down, "lr": down["lr"] * rate}

    def round_of(
        self, progress: Progress, ids: Tensor, key: Tensor, down: Downlink | None = None
    ) -> CohortRound:
        """A round of some clients as the run stands, for an engine to train."""
        method, local = self.method(progress), self.halves[progress.stage]
        down = down or self.broadcast(progress)
        return CohortRound(
            task=self.task,
            local=local,
            fed=self.fed,
            down=down,
            ids=ids,
            states=first_rounds.states(self, progress, down)(ids),
            key=key,
            needs_loss=method.weights.needs_loss,
        )

    def _train(
        self, progress: Progress, down: Downlink, ids: Tensor, line: dict[str, Any]
    ) -> Generator[CohortRound, tuple[Uplink, Tree], tuple[Uplink, RoundTraffic]]:
        """The cohort's messages, fit for the server, and what was communicated."""
        method, stage = self.method(progress), progress.stage
        unseen = ~progress.clients.seen[ids.cpu()]
        if progress.took_part is not None:
            progress.took_part[stage, ids.cpu()] += 1
        answers = yield from self.clients.round(self, progress, down, ids)
        sent, used, reached = answers.sent, answers.used, answers.reached
        line |= {"gradients": answers.gradients, **answers.report}
        if method.server_half.sends_update and len(sent.ids):
            line["update_norm"] = float(answers.norm) / max(1, len(used.ids)) ** 0.5
        message, private = self.sizes[stage]
        joined = int((unseen if reached is None else unseen & reached.cpu()).sum())
        first = 0 if method.local.keeps_whole_model else private * joined
        received = None if reached is None else int(reached.sum())
        return used, round_traffic(down, sent, message, first, received)

    def _after(self, progress: Progress, line: dict[str, Any]) -> None:
        """Validation where it is due, and the change of stage."""
        stage = self.plan.stages[progress.stage]
        last = progress.round == self.last
        if last and self.last == self.affordable < self.rounds:
            line["stopped"] = "the privacy budget is spent"
        every = self.spacing
        due = last or stage.goal is not None or (every and progress.round % every == 0)
        if self.validation is not None:
            due = progress.round in self.validation
            line |= self.validation.get(progress.round, {})
        elif due:
            line |= self.clients.validate(self, progress)
        if due:
            line |= evaluated_rounds.central_value(self, progress)
            if self.patience is not None:
                best_round.noted(self, progress, line)
        reached = stage.goal is not None and line.get("val_accuracy", 0.0) >= stage.goal
        if len(self.plan.stages) > 1:
            line["stage"] = stage.name
        length = stage.length(self.rounds)
        over = reached or (length is not None and progress.round - progress.stage_began >= length)
        if over and progress.stage + 1 < len(self.plan.stages) and not last:
            self._next_stage(progress)

    def _next_stage(self, progress: Progress) -> None:
        """The next stage starts from what this one ended with; clients start it lazily."""
        params = whole_model(self.task, progress.server)
        progress.stage += 1
        progress.stage_began = progress.round
        key = self.key(BEGIN, progress.stage)
        begun = self.method(progress).begin(self.task, params, self.setting, key)
        progress.server = {**begun, "privacy": progress.server["privacy"]}  # spent is spent
        progress.clients = self.store(progress)

    def make(self, progress: Progress, local: Local) -> FirstStates | FirstByGroup:
        """How a client makes its state when it first takes part in this stage."""
        of_number, numbers = partial(self.key, INIT, progress.stage), self.fed.numbers
        key = of_number if numbers is None else lambda client: of_number(int(numbers[client]))

        def first(task: Task, params: Params) -> FirstStates:
            return FirstStates(init=lambda key: local.init(task, params, key), key=key)

        if isinstance(self.task, Architectures):
            shared, parts = progress.server["params"], self.task.parts
            own = tuple(first(part, {**part.params, **shared}) for part in parts)
            return FirstByGroup(own, self.task.of_client)
        return first(self.task, whole_model(self.task, progress.server))

    def models(self, progress: Progress, down: Downlink | None = None) -> Models:
        """Every client's candidates, as the run stands; ``down`` is what the server sent them."""
        local, down = self.halves[progress.stage], down or self.broadcast(progress)
        states = first_rounds.states(self, progress, down)
        if local.solve_before_evaluation:
            key = self.round_key(progress)
            states = partial(first_rounds.solved, self, progress, local, down, states, key)
        task, candidates = self.task, self.engine.candidates
        return lambda ids: candidates(task, local, down, states(ids), len(ids))

    def one_for_all(self, progress: Progress) -> bool:
        """Whether clients keep nothing, so that they all predict with the same model."""
        local = self.halves[progress.stage]
        return not tree.leaves(local.predicts_from(self.make(progress, local)(0)))


def finish(steps: RoundSteps, trained: tuple[Uplink, Tree]) -> None:
    """The rest of a round, of which the cohort is trained."""
    with suppress(StopIteration):
        steps.send(trained)
