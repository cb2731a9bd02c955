"""A fit's order: what was asked for, checked, and how each repeat of it is carried out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

from torch import Tensor

from glocal.core import tree
from glocal.core import validation as fields
from glocal.core.errors import ClientError, GlocalError, unknown
from glocal.core.interrupts import Stopped
from glocal.data.federation import Federation
from glocal.evaluation.communication import Traffic, published
from glocal.experiment import ensemble as newtest
from glocal.experiment import memory_estimate as limits
from glocal.experiment import setup as place
from glocal.experiment.adaptation import Public, techniques
from glocal.experiment.adaptation_report import after
from glocal.experiment.fingerprint import digest
from glocal.experiment.repeat import Repeat, Trained, contents, judge, struck
from glocal.experiment.setup import ModelLike, Place
from glocal.experiment.synthetic import made
from glocal.methods.local import LocalTraining
from glocal.nn.task import PRECISIONS, Augment, Losses, cross_entropy
from glocal.slots.method import Method, Plan
from glocal.slots.server_half import whole_model
from glocal.training import attacks
from glocal.training.checkpoint import Keeper, Keeping, packed, reclaim, unpacked
from glocal.training.client_state.placement import Storage, check_place
from glocal.training.divergence import check_policy
from glocal.training.loop import Progress, Training
from glocal.training.sampling import Fixed, Fraction, Poisson, Sampler

Tick = Callable[[int, int], None]
"""How much is done and how much there is."""

OnRound = Callable[[Progress, list[dict[str, Any]]], None]
"""Where a training stands, and the lines of its history that are new."""


def no_tick(done: int, total: int) -> None:
    """Say nothing."""


CHECKED = ("sampled", "poisson", "validate_every", "new_test")
"""What is plain text or a number, and checked nowhere else."""


@dataclass(frozen=True)
class Order:
    """What was asked for, checked: all that a fit depends on but the method and the data."""

    model: ModelLike = "mlp"
    rounds: int = 50
    fraction: float = 1.0
    sampled: int | None = None
    poisson: bool = False
    repeats: int = 1
    seed: int = 0
    engine: str = "auto"
    device: str = "cpu"
    init: Mapping[str, Tensor] | str | Path | None = None
    losses: Losses = cross_entropy
    augment: Augment | None = None
    yardstick: Method | str | None = None
    validate_every: int = 0
    new_test: bool = False
    adapt: str | None = None
    public: Public | None = None
    attack: str | None = None
    diverged: str = "fatal"
    states: str = "auto"
    precision: str = "single"

    def __post_init__(self) -> None:
        if self.attack is not None:
            attacks.parse(self.attack)
        if self.adapt is not None:
            techniques(self.adapt)
        for name, kind in get_type_hints(Order).items():
            if name in CHECKED:
                fields.check(name, getattr(self, name), kind)
        fields.positive_integers(rounds=self.rounds, repeats=self.repeats)
        if self.validate_every < 0:
            raise GlocalError(f"validate_every must be 0 or more, not {self.validate_every}.")
        seed = self.seed
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << 63:
            raise GlocalError(f"seed must be an integer from 0 to 2^63 − 1, not {seed}.")
        place.alone_of(self.yardstick)
        check_place(self.states)
        if self.precision not in PRECISIONS:
            raise unknown("precision", self.precision, PRECISIONS)
        check_policy(self.diverged)

    def alone(self, plan: Plan) -> LocalTraining:
        """How clients train alone: the plan itself, if that is what it is."""
        return itself(plan) or place.alone_of(self.yardstick)

    def place(self, fed: Federation, repeat: int) -> Place:
        """Where the ``repeat``-th repeat is done."""
        return place.make(
            fed,
            self.model,
            self.seed,
            repeat,
            self.engine,
            self.device,
            self.init,
            self.losses,
            self.augment,
            self.precision,
        )

    def training(self, plan: Plan, here: Place) -> Training:
        """The rounds of a plan; refuses what does not fit the model or the sampling."""
        adversary, fed = None, here.fed
        if self.attack is not None:
            # Of all repeats the same clients, so that what became of the others can be pooled.
            adversary = attacks.parse(self.attack).on(fed, self.seed)
            fed = adversary.poisoned(fed)
            for stage in plan.stages:
                half = stage.method.server_half
                if not half.sends_update and adversary.attack.poison is None:
                    raise GlocalError(
                        f"{half.name} sends no update of a model, so "
                        f"{self.attack} would change nothing: attack its data, as with "
                        "label-flip."
                    )
        sampler = _sampler(self.fraction, self.sampled, self.poisson, len(here.fed))
        rounds, every = self.rounds, self.validate_every
        training = Training(
            plan,
            here.task,
            fed,
            here.engine,
            sampler,
            rounds,
            here.seed,
            every,
            adversary,
            self.diverged,
            Storage(self.states),
        )
        for technique in techniques(self.adapt) if self.adapt is not None else ():
            technique.check(here.task, self.public)
        for stage in plan.stages:
            stage.method.check(here.task, here.fed, training.setting)
        return training

    def needs(self, plan: Plan, here: Place, processes: int = 1) -> limits.Estimate | None:
        """The memory that the plan's repeats will take, beyond what is taken already.

        Asked before anyone trains. None if that cannot be found out: something in the method or
        the model fails, and training will say where.
        """
        training = None if itself(plan) else self.training(plan, here)
        alone = self.alone(plan)
        try:
            return limits.estimate(
                here.task,
                here.fed,
                here.engine,
                alone,
                training,
                repeats=self.repeats,
                processes=processes,
                known=place.is_measured(here, alone),
                states=self.states,
            )
        except Exception:  # whatever a user's method raises
            return None

    def by_itself(
        self,
        alone: LocalTraining,
        here: Place,
        tick: Tick = no_tick,
        keeping: Keeping | None = None,
    ) -> Repeat:
        """Every client trains alone."""
        keeper, storage = None, Storage(self.states, what="the local baseline's models")
        if keeping is not None:
            code = digest(here.task.module, self.losses, self.augment)
            keeper = keeping.epochs(here.repeat, f"alone {code} {here.digest} {alone.label}")
            storage = Storage(self.states, keeper.series.folder, keeping.note, storage.what)
        yard, judged = place.measured(here, alone, tick, keeper, storage)
        together = None
        if self.new_test:
            models = yard.models.rows_of
            together = newtest.own_models(here.task, here.fed, here.engine, models)
        states, on_disk = contents(yard.models, final=True)
        val = yard.val_accuracy
        return Repeat(
            judged, Traffic(), {}, states, [], 0, together, *_facts(here), val, on_disk=on_disk
        )

    def federated(
        self,
        plan: Plan,
        here: Place,
        on_round: OnRound = lambda progress, new: None,
        on_epoch: Tick = no_tick,
        keeping: Keeping | None = None,
        name: str = "",
    ) -> Repeat:
        """Clients train together, and then adapt what they got, where that was asked for.

        ``on_round`` is called with where the training stands and the lines of its history that are
        new: one after each round, many where it was taken up again.
        """
        training = self.training(plan, here)
        keeper = None
        if keeping is not None:
            keeper = keeping.rounds(here.repeat, self._known_by(name, plan, here))
            storage = Storage(self.states, keeper.series.folder, keeping.note)
            training = replace(training, storage=storage)
        done, stopped = self._rounds(training, here, on_round, keeper)
        trained = Trained(training, done)
        judged, val = judge(trained, here.fed)
        adapted = None
        if self.adapt is not None:
            wanted = techniques(self.adapt)
            where = (here.task, here.fed, here.engine)

            def tick(epoch: int, epochs: int) -> None:
                on_epoch(epoch, epochs)
                if keeping is not None and keeping.stop():
                    raise Stopped  # what was trained is on disk, and adapting is done again

            seed, public = here.seed, self.public
            adapted = after(*where, wanted, trained.models, seed, public=public, tick=tick)
        states, on_disk = contents(done.clients)
        return Repeat(
            judged,
            done.traffic,
            whole_model(here.task, done.server),
            states,
            done.history,
            _published(training, done),
            newtest.new_test(trained) if self.new_test else None,
            *_facts(here),
            val,
            adapted,
            trained,
            struck(training, here, trained.models, stopped),
            _spent(training, done),
            made(training, done, here.fed),
            on_disk,
        )

    def _rounds(
        self, training: Training, here: Place, on_round: OnRound, keeper: Keeper | None
    ) -> tuple[Progress, int | None]:
        """All rounds; or those until an attack left nothing finite to train, and which that was."""
        kept = keeper.last() if keeper else None
        if kept is None:
            progress = training.begin(here.task.params)
        else:
            progress = unpacked(kept, training)
            on_round(progress, progress.history)

        def after(done: Progress) -> None:
            on_round(done, done.history[-1:])
            if keeper is not None:
                last = done.round == training.last
                if keeper.after(done.round, lambda: packed(done), last):
                    reclaim(done, training, keeper)

        try:
            return training.run(progress, after), None
        except ClientError:
            if keeper is not None:
                keeper.write(progress.round, lambda: packed(progress))  # the last that was good
            if training.adversary is None:
                raise
            # That the federation ends there is what was to be found out: it is judged as it stands.
            return progress, progress.round + 1

    def _known_by(self, name: str, plan: Plan, here: Place) -> str:
        """What a checkpoint must be of, to be taken for this repeat's."""
        drawn = (self.rounds, self.fraction, self.sampled, self.poisson, self.attack)
        code = digest(plan, here.task.module, self.losses, self.augment)
        return f"{name} {code} {here.digest} {drawn} {self.validate_every}"

    def line(self, line: Mapping[str, Any], repeat: int) -> dict[str, Any]:
        """A round's line, with its repeat where there are several."""
        return {**line, **({"repeat": repeat + 1} if self.repeats > 1 else {})}

    def title(self, what: str, repeat: int) -> str:
        """What a progress bar says."""
        return f"{what} ({repeat + 1} of {self.repeats})" if self.repeats > 1 else what


def itself(plan: Plan) -> LocalTraining | None:
    """The plan as a way of being alone, if it is one."""
    own = plan.stages[0].method.local if len(plan.stages) == 1 else None
    return own if isinstance(own, LocalTraining) else None


def _facts(here: Place) -> tuple[str, str, int]:
    return here.engine.name, here.model_name, tree.count(here.task.params)


def _spent(training: Training, done: Progress) -> dict[str, Any] | None:
    privacy = training.method(done).privacy
    return privacy.spent(done.server["privacy"], training.setting) if privacy else None


def _published(training: Training, done: Progress) -> int:
    """As papers count: what is shared goes down to everybody and up from the sampled."""
    setting = training.setting
    sizes = [
        up.get("shared", 0) // max(1, line["cohort"])
        for up, line in zip(done.traffic.up, done.history, strict=True)
    ]
    return sum(published(1, size, setting.clients, setting.fraction) for size in sizes)


def _sampler(fraction: float, sampled: int | None, poisson: bool, clients: int) -> Sampler:
    if sampled is not None:
        fields.positive_integers(sampled=sampled)
        if sampled > clients:
            raise GlocalError(
                f"{sampled} clients a round cannot be drawn from {clients}: ask for fewer."
            )
        return Poisson(sampled / clients) if poisson else Fixed(sampled)
    return Poisson(fraction) if poisson else Fraction(fraction)
