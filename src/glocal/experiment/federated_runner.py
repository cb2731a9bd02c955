"""A method whose clients train together: its repeats side by side, tuned where that was asked for.

:func:`glocal.experiment.runner.run_seeds` runs it, as it runs clients that never meet a server.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from glocal.core.errors import GlocalError
from glocal.core.interrupts import Stopped
from glocal.core.validation import positive_integers
from glocal.data.schema import needs_classes
from glocal.evaluation.communication import published
from glocal.evaluation.measures import of_task
from glocal.evaluation.trials import pool_is_valid
from glocal.experiment import ensemble, tuning, unequal
from glocal.experiment import setup as setups
from glocal.experiment.adaptation import techniques
from glocal.experiment.adapted_clients import adapt_clients
from glocal.experiment.callbacks import Callbacks, Line
from glocal.experiment.config import Config
from glocal.experiment.fingerprint import digest
from glocal.experiment.public_data import check_public
from glocal.experiment.repeat import (
    Repeat,
    Trained,
    contents,
    evaluate_trained,
    progress_of,
    struck,
)
from glocal.experiment.setup import Setup
from glocal.experiment.synthetic import made
from glocal.experiment.tuning import Choice
from glocal.nn.architectures import parts
from glocal.slots.method import Plan
from glocal.slots.server_half import whole_model
from glocal.training import plateau, secret_draws
from glocal.training.availability import availability
from glocal.training.best_round import at_best
from glocal.training.checkpoint import CheckpointPolicy, CheckpointWriter
from glocal.training.client_state.placement import Storage
from glocal.training.loop import Training
from glocal.training.participation import check_answered, check_somebody
from glocal.training.resumed import RoundsEnd, run_rounds
from glocal.training.run_state import Progress
from glocal.training.sampling import Fixed, Fraction, Poisson, Sampler
from glocal.training.side_by_side import LaneGroup
from glocal.training.stragglers import stragglers


@dataclass(frozen=True)
class Federated:
    """Clients train together, and then adapt what they got, where that was asked for."""

    name: str
    plan: Plan
    rates: tuple[float, ...] = (1.0,)
    """Factors on the learning rate that are tried where the method is tuned."""

    @property
    def private(self) -> bool:
        """Whether the method has privacy, which all of its stages then have."""
        return self.plan.stages[0].method.private

    def check(self, setup: Setup) -> Training:
        """Refuse, before anyone trains, what does not fit the data, the model or the sampling."""
        config, adversary, fed = setup.config, None, setup.fed
        attack = setups.attack(config.attack)
        if attack is not None:
            # Of all repeats the same clients, so that what became of the others can be pooled.
            adversary = attack.on(fed, config.seed)
            fed = adversary.poisoned(fed)
            for stage in self.plan.stages:
                half = stage.method.server_half
                if not half.sends_update and attack.poison is None:
                    raise GlocalError(
                        f"{half.name} sends no update of a model, so "
                        f"{attack.spec} would change nothing: attack its data, as with label-flip."
                    )
        training = Training(
            self.plan,
            setup.task,
            fed,
            setup.engine,
            _sampler(config, len(fed)),
            self.plan.rounds or config.rounds,
            setup.seed,
            config.validate_every,
            adversary,
            config.diverged,
            availability(config.availability),
            stragglers(config.stragglers),
            Storage(config.states),
            longest_update=config.longest_update,
            patience=config.patience,
            public_noise=config.public_noise,
        )
        check_somebody(training)
        if config.patience is not None and self.private:
            raise GlocalError(
                "the round that patience keeps would be chosen on clients' data without noise, "
                "which dp does not count: leave one of them out."
            )
        unequal.check(setup.task, self.plan, techniques(config.adapt))
        plateau.check(self.plan, config.validate_every)
        for technique in techniques(config.adapt):
            technique.check(setup.task, config.public, private=self.private)
            if technique.name == "distill":
                needs_classes(fed, "distill")
        if any(stage.goal is not None for stage in self.plan.stages):
            needs_classes(fed, "a stage's goal, an accuracy,")
        if config.public is not None:
            check_public(config.public, setup.fed)
        for stage in self.plan.stages:
            stage.method.check(setup.task, setup.fed, training.setting)
        return training

    def run(
        self, setup: Setup, callbacks: Callbacks, checkpoints: CheckpointPolicy | None
    ) -> Repeat:
        """One repeat."""
        return self.run_side_by_side([setup], callbacks, checkpoints, lanes=1)[0]

    def tries(self, config: Config) -> tuple[float, ...]:
        """The rates at which each repeat is trained before it is trained for good."""
        return self.rates if config.tune and tuning.why_not(self.plan) is None else ()

    def run_side_by_side(
        self,
        setups: Sequence[Setup],
        callbacks: Callbacks,
        checkpoints: CheckpointPolicy | None,
        lanes: int | None = None,
    ) -> list[Repeat]:
        """Repeats that train together, with checkpoints of all of them; then each is evaluated.

        Where they are tuned, ``lanes`` trainings at different rates go side by side first.
        """
        config, trainings, keeper = setups[0].config, [self.check(s) for s in setups], None
        choices: list[Choice | None] = [None] * len(setups)
        if self.tries(config):
            turns = (len(setups) * len(self.tries(config)), len(setups))
            choices = [*self._chosen(setups, trainings, turns, callbacks, checkpoints, lanes)]
            trainings = [
                choice.training(self.check(tuning.again(setup)), turns)
                for setup, choice in zip(setups, choices, strict=True)
                if choice is not None
            ]
        if checkpoints is not None:
            of = "; ".join(
                self.known_by(setup) + (f" {training.rate} {training.stop}" if config.tune else "")
                for setup, training in zip(setups, trainings, strict=True)
            )
            keeper = checkpoints.rounds(setups[0].repeat, of, setups[-1].repeat)
            trainings = self._kept(trainings, keeper, checkpoints)

        def on_round(r: int, done: Progress, new: list[Line]) -> None:
            setup = setups[r]
            callbacks.report(
                setup.title(self.name), done.round, trainings[r].stop or trainings[r].rounds
            )
            for line in new:
                of_several = {"repeat": setup.repeat + 1} if config.repeats > 1 else {}
                callbacks.on_line(self.name, {**line, **of_several})
            callbacks.on_round(done)

        group = LaneGroup.of(trainings)
        ends = run_rounds(group, on_round, keeper)
        last = keeper.series.newest_name() if keeper else None
        return [
            self._evaluated(setup, training, end, choice, callbacks, checkpoints, last)
            for setup, training, end, choice in zip(
                setups, group.trainings, ends, choices, strict=True
            )
        ]

    def _kept(
        self, trainings: Sequence[Training], keeper: CheckpointWriter, policy: CheckpointPolicy
    ) -> list[Training]:
        """The trainings with their clients' states, where these are on disk, beside checkpoints."""
        storage = replace(trainings[0].storage, folder=keeper.series.folder, note=policy.note)
        return [replace(training, storage=storage) for training in trainings]

    def _chosen(
        self,
        setups: Sequence[Setup],
        trainings: Sequence[Training],
        turns: tuple[int, ...],
        callbacks: Callbacks,
        checkpoints: CheckpointPolicy | None,
        lanes: int | None,
    ) -> Iterator[Choice]:
        """What each repeat chooses on validation data, from trainings at all rates."""
        rates = self.tries(setups[0].config)
        tried = [
            (setup, factor, tuning.tried(training, factor, turns))
            for setup, training in zip(setups, trainings, strict=True)
            for factor in rates
        ]
        first, ends, left = setups[0].repeat * len(rates), [], tried
        while left:
            begun = checkpoints.side_by_side(first, "rate") if checkpoints else None
            size = begun or lanes or len(left)
            some, left, keeper = left[:size], left[size:], None
            together = [training for _, _, training in some]
            if checkpoints is not None:
                of = "; ".join(f"{self.known_by(setup)} rate {f}" for setup, f, _ in some)
                keeper = checkpoints.rounds(first, of, first + len(some) - 1, "rate")
                together = self._kept(together, keeper, checkpoints)

            def on_round(r: int, done: Progress, some: Any = some) -> None:
                setup, factor, training = some[r]
                if factor == rates[0]:
                    title = setup.title(f"{self.name}, choosing")
                    callbacks.report(title, done.round, training.last)

            ends += tuning.search(together, keeper, on_round)
            first += len(some)
        for r in range(len(setups)):
            of_repeat = ends[r * len(rates) : (r + 1) * len(rates)]
            yield tuning.choose(rates, of_repeat, of_task(setups[r].task))

    def _evaluated(
        self,
        setup: Setup,
        training: Training,
        end: RoundsEnd,
        choice: Choice | None,
        callbacks: Callbacks,
        checkpoints: CheckpointPolicy | None,
        last: str | None,
    ) -> Repeat:
        """What a training that is over came to; its ``last`` checkpoint's name says which it is."""
        config, done = setup.config, at_best(training, end.progress)
        check_answered(done.history)
        trained = Trained(training, done, choice.picks if choice else None)
        known = choice.scores.to(setup.fed.x.device) if choice else None
        outcome, scores = evaluate_trained(trained, setup.fed, known)

        def evaluating(finished: int, of: int) -> None:
            title = setup.title(f"{self.name}, evaluating its synthetic data")
            callbacks.report(title, finished, of)
            if checkpoints is not None and checkpoints.stop():
                raise Stopped  # what was trained is on disk, and this is done again

        adapted, keeper = None, None
        if config.adapt is not None:
            where = (setup.task, setup.fed, setup.engine, techniques(config.adapt))
            if checkpoints is not None:
                pooled = pool_is_valid(setup.fed)  # what blocks that are done were evaluated on
                told = digest(config.adapt, config.public, pooled)
                of = f"{self.known_by(setup)} after {last} adapted {told}"
                keeper = checkpoints.adaptation(setup.repeat, of)
            adapted = adapt_clients(
                *where,
                trained.models,
                setup.seed,
                public=config.public,
                private=self.private,
                tick=partial(callbacks.report, setup.title(f"{self.name}, adapting")),
                writer=keeper,
            )
        states, on_disk = contents(done.clients)
        privacy, public = training.method(done).privacy, training.public_noise
        return Repeat(
            outcome,
            scores.value,
            end.executed,
            val_loss=scores.loss,
            val_error=scores.error,
            traffic=done.traffic,
            model=whole_model(setup.task, done.server),
            states=states,
            history=done.history,
            published=_published(training, done),
            gradients=sum(line.get("gradients", 0) for line in done.history)
            + (choice.gradients if choice else 0),
            seconds=end.seconds + (choice.seconds if choice else 0.0),
            chosen=self._recorded(choice, config),
            kept=_kept_round(choice, end.progress, config),
            together=ensemble.new_test(trained) if config.new_test else None,
            adapted=adapted,
            trained=trained,
            struck=struck(training, setup, trained.models, end.stopped),
            privacy=privacy.spent(done.server["privacy"], training.setting, public=public)
            if privacy
            else None,
            examples=secret_draws.examples_spent(training, end.progress),
            made=made(training, done, setup.fed, evaluating),
            on_disk=on_disk,
        )

    def _recorded(self, choice: Choice | None, config: Config) -> dict[str, Any] | None:
        refitted = config.adapt is None
        tries = len(self.rates)
        return tuning.recorded(choice, self.plan, tries, refitted) if config.tune else None

    def known_by(self, setup: Setup) -> str:
        """What a checkpoint must be of, to be taken for this repeat's."""
        config, task = setup.config, setup.task
        code = digest(self.plan, *(p.module for p in parts(task)), task.losses, task.augment)
        about = {**config.trained(), "validate_every": config.validate_every}
        about.pop("diverged", None)  # what diverged may be resumed otherwise
        if setup.fed.central is not None:  # on which lines have a value
            about["central"] = digest(setup.fed.central)
        if setup.metric != "accuracy":
            about["metric"] = setup.measured_by  # by which rates are chosen
        return f"{self.name} {code} {setup.digest} {about}"

    def restored(self, setup: Setup, repeat: Repeat) -> Repeat:
        """A repeat that came without its training, with it again, to be evaluated further."""
        training, states, picks = self.check(setup), dict(repeat.states), None
        if repeat.chosen is not None and "round" in repeat.chosen:
            picks = tuple(repeat.outcome.chosen)
        stages = [line.get("stage") for line in repeat.history]
        if repeat.kept is not None:  # what came after it is nobody's model
            stages = stages[: repeat.kept["round"]]
        progress = progress_of(training, repeat.model, states.pop("ids"), states, stages)
        progress = replace(progress, traffic=repeat.traffic, history=repeat.history)
        return replace(repeat, trained=Trained(training, progress, picks))


def _kept_round(choice: Choice | None, done: Progress, config: Config) -> dict[str, int] | None:
    """Where it may end early: the round that is kept, and how many were trained."""
    if config.patience is None:
        return None
    if choice is not None:
        return {"round": choice.round, "trained": choice.trained}
    return {"round": done.best.round if done.best else done.round, "trained": done.round}


def _published(training: Training, done: Progress) -> int:
    """As papers count: what is sent goes down to everybody and up from the sampled."""
    clients, share = training.setting.clients, training.setting.fraction
    total = 0
    for line, down, up in zip(done.history, done.traffic.down, done.traffic.up, strict=True):
        received = line["cohort"] - len(line.get("away", ()))
        answered = received - len(line.get("dropped", ()))
        total += published(down, up, received, clients, share, answered)
    return total


def _sampler(config: Config, clients: int) -> Sampler:
    """How the clients of a round are drawn."""
    sampled = config.sampled
    if sampled is not None:
        positive_integers(sampled=sampled)
        if sampled > clients:
            raise GlocalError(
                f"{sampled} clients a round cannot be drawn from {clients}: ask for fewer."
            )
        return Poisson(sampled / clients) if config.poisson else Fixed(sampled)
    return Poisson(config.fraction) if config.poisson else Fraction(config.fraction)
