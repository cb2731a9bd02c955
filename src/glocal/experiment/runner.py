"""One repeat of one method on one split and seed: what fits, process pools and studies call.

There are two runners, chosen once for a method: :class:`LocalOnly`, whose clients never meet a
server (the local baseline is one), and :class:`Federated`. :func:`run_seed` runs one repeat of
either, :func:`run_seeds` all of them, side by side where that fits into memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from glocal.core.errors import GlocalError
from glocal.core.interrupts import Stopped
from glocal.core.validation import positive_integers
from glocal.evaluation.communication import published
from glocal.experiment import ensemble
from glocal.experiment import memory_estimate as limits
from glocal.experiment import setup as setups
from glocal.experiment.adaptation import techniques
from glocal.experiment.adaptation_report import adapt_clients
from glocal.experiment.baseline import known_by
from glocal.experiment.best_runner import BestAlone
from glocal.experiment.callbacks import Callbacks, Line
from glocal.experiment.config import Config
from glocal.experiment.fingerprint import digest
from glocal.experiment.local_runner import LocalOnly
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
from glocal.methods import resolve
from glocal.methods.local import LocalTraining
from glocal.slots.method import Method, Plan, as_plan
from glocal.slots.server_half import whole_model
from glocal.training.checkpoint import CheckpointPolicy
from glocal.training.client_state.placement import Storage
from glocal.training.loop import Progress, Training
from glocal.training.resumed import RoundsEnd, run_rounds
from glocal.training.sampling import Fixed, Fraction, Poisson, Sampler
from glocal.training.side_by_side import LaneGroup

__all__ = [
    "AnyRunner",
    "BestAlone",
    "Callbacks",
    "Federated",
    "Line",
    "LocalOnly",
    "Runner",
    "baseline_of",
    "groups",
    "memory_needed",
    "run_seed",
    "run_seeds",
    "runner_of",
    "set_against",
]


@dataclass(frozen=True)
class Federated:
    """Clients train together, and then adapt what they got, where that was asked for."""

    name: str
    plan: Plan

    @property
    def private(self) -> bool:
        """Whether the method has privacy, which all of its stages then have."""
        return self.plan.stages[0].method.privacy is not None

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
            Storage(config.states),
        )
        for technique in techniques(config.adapt):
            technique.check(setup.task, config.public, private=self.private)
        if config.public is not None:
            check_public(config.public, setup.fed)
        for stage in self.plan.stages:
            stage.method.check(setup.task, setup.fed, training.setting)
        return training

    def run(
        self, setup: Setup, callbacks: Callbacks, checkpoints: CheckpointPolicy | None
    ) -> Repeat:
        """One repeat."""
        return self.run_side_by_side([setup], callbacks, checkpoints)[0]

    def run_side_by_side(
        self,
        setups: Sequence[Setup],
        callbacks: Callbacks,
        checkpoints: CheckpointPolicy | None,
    ) -> list[Repeat]:
        """Repeats that train together, with checkpoints of all of them; then each is evaluated."""
        trainings, keeper = [self.check(setup) for setup in setups], None
        if checkpoints is not None:
            of = "; ".join(self._known_by(setup) for setup in setups)
            keeper = checkpoints.rounds(setups[0].repeat, of, setups[-1].repeat)
            storage = Storage(setups[0].config.states, keeper.series.folder, checkpoints.note)
            trainings = [replace(training, storage=storage) for training in trainings]

        def on_round(r: int, done: Progress, new: list[Line]) -> None:
            setup, config = setups[r], setups[r].config
            callbacks.report(setup.title(self.name), done.round, trainings[r].rounds)
            for line in new:
                of_several = {"repeat": setup.repeat + 1} if config.repeats > 1 else {}
                callbacks.on_line(self.name, {**line, **of_several})
            callbacks.on_round(done)

        group = LaneGroup.of(trainings)
        ends = run_rounds(group, on_round, keeper)
        return [
            self._evaluated(setup, training, end, callbacks, checkpoints)
            for setup, training, end in zip(setups, group.trainings, ends, strict=True)
        ]

    def _evaluated(
        self,
        setup: Setup,
        training: Training,
        end: RoundsEnd,
        callbacks: Callbacks,
        checkpoints: CheckpointPolicy | None,
    ) -> Repeat:
        """What a training that is over came to."""
        config, done = setup.config, end.progress
        trained = Trained(training, done)
        outcome, val_accuracy = evaluate_trained(trained, setup.fed)
        adapted = None
        if config.adapt is not None:
            what = setup.title(f"{self.name}, adapting")

            def tick(epoch: int, epochs: int) -> None:
                callbacks.report(what, epoch, epochs)
                if checkpoints is not None and checkpoints.stop():
                    raise Stopped  # what was trained is on disk, and adapting is done again

            where = (setup.task, setup.fed, setup.engine, techniques(config.adapt))
            adapted = adapt_clients(
                *where,
                trained.models,
                setup.seed,
                public=config.public,
                private=self.private,
                tick=tick,
            )
        states, on_disk = contents(done.clients)
        privacy = training.method(done).privacy
        return Repeat(
            outcome,
            val_accuracy,
            end.executed,
            traffic=done.traffic,
            model=whole_model(setup.task, done.server),
            states=states,
            history=done.history,
            published=_published(training, done),
            gradients=sum(line.get("gradients", 0) for line in done.history),
            seconds=end.seconds,
            together=ensemble.new_test(trained) if config.new_test else None,
            adapted=adapted,
            trained=trained,
            struck=struck(training, setup, trained.models, end.stopped),
            privacy=privacy.spent(done.server["privacy"], training.setting) if privacy else None,
            made=made(training, done, setup.fed),
            on_disk=on_disk,
        )

    def _known_by(self, setup: Setup) -> str:
        """What a checkpoint must be of, to be taken for this repeat's."""
        config, task = setup.config, setup.task
        code = digest(self.plan, task.module, task.losses, task.augment)
        about = {**config.trained(), "validate_every": config.validate_every}
        about.pop("diverged", None)  # what diverged may be resumed otherwise
        return f"{self.name} {code} {setup.digest} {about}"

    def restored(self, setup: Setup, repeat: Repeat) -> Repeat:
        """A repeat that came without its training, with it again, to be evaluated further."""
        training, states = self.check(setup), dict(repeat.states)
        stages = [line.get("stage") for line in repeat.history]
        progress = progress_of(training, repeat.model, states.pop("ids"), states, stages)
        progress = replace(progress, traffic=repeat.traffic, history=repeat.history)
        return replace(repeat, trained=Trained(training, progress))


Runner = LocalOnly | Federated
"""The runners of methods."""

AnyRunner = Runner | BestAlone


def runner_of(name: str, method: str | Method | Plan) -> Runner:
    """The runner of a method, by what its clients do."""
    plan = as_plan(resolve(method) if isinstance(method, str) else method)
    client = plan.stages[0].method.local if len(plan.stages) == 1 else None
    return LocalOnly(name, client) if isinstance(client, LocalTraining) else Federated(name, plan)


def baseline_of(config: Config) -> LocalOnly:
    """The local baseline: clients that train the same model alone."""
    return LocalOnly("alone", setups.baseline(config.baseline))


def set_against(config: Config, runners: Mapping[str, Runner]) -> dict[str, LocalOnly | None]:
    """What each method is set against: itself, if it is the local baseline, or that, or nothing.

    ``local`` with whatever settings is its own baseline where it is the only method and no other
    baseline was asked for.
    """
    if config.baseline == "none":
        return dict.fromkeys(runners)
    baseline = baseline_of(config)

    def is_baseline(runner: Runner) -> bool:
        if not isinstance(runner, LocalOnly):
            return False
        only = len(runners) == 1 and config.baseline in (None, "same")
        return only or known_by(runner.client) == known_by(baseline.client)

    return {
        name: runner if isinstance(runner, LocalOnly) and is_baseline(runner) else baseline
        for name, runner in runners.items()
    }


def run_seed(
    runner: Runner,
    setup: Setup,
    callbacks: Callbacks | None = None,
    checkpoints: CheckpointPolicy | None = None,
) -> Repeat:
    """One repeat of a method, resumed where there are checkpoints of it."""
    with setup.threads():
        return runner.run(setup, callbacks or Callbacks(), checkpoints)


def run_seeds(
    runner: AnyRunner,
    setups: Sequence[Setup],
    callbacks: Callbacks | None = None,
    checkpoints: CheckpointPolicy | None = None,
    *,
    lanes: int | None = None,
) -> list[Repeat]:
    """All repeats of a method; of all but the first, the figures without the models.

    ``lanes`` of them train side by side (by default as many as fit into memory), the others after
    them, in groups; those that were begun before, grouped as they were.
    """
    callbacks, by_repeat = callbacks or Callbacks(), {setup.repeat: setup for setup in setups}
    results: list[Repeat] = []
    if not isinstance(runner, Federated):
        lanes = len(setups)
    elif lanes is None:
        lanes = limits.lanes(memory_needed(runner, setups[0]), setups[0].fed.x.device)
    for some in groups(runner, list(by_repeat), lanes, checkpoints):
        together = [by_repeat[r] for r in some]
        with together[0].threads():
            for repeat in runner.run_side_by_side(together, callbacks, checkpoints):
                first = not results and some[0] == 0
                results.append(repeat if first else repeat.figures())
    return results


def groups(
    runner: AnyRunner, repeats: Sequence[int], lanes: int, checkpoints: CheckpointPolicy | None
) -> list[tuple[int, ...]]:
    """The repeats that train side by side: as many as can, or as they were begun."""
    left, divided = tuple(repeats), []
    while left:
        begun = None
        if checkpoints is not None and isinstance(runner, Federated):
            begun = checkpoints.side_by_side(left[0])
        divided.append(left[: begun or lanes])
        left = left[begun or lanes :]
    return divided


def memory_needed(runner: Runner, setup: Setup, processes: int = 1) -> limits.Estimate | None:
    """The memory that all repeats will take, beyond what is taken already.

    None if that cannot be found out: something in the method or the model fails, and training will
    say where. What does not fit is refused.
    """
    training, none = runner.check(setup), setup.config.baseline == "none"
    if isinstance(runner, LocalOnly):
        baseline = runner.client
    else:
        baseline = setups.baseline("same" if none else setup.config.baseline)
    try:
        known = setups.is_measured(setup, baseline)
        known |= none and isinstance(runner, Federated)  # or rather, it is not there at all
        return limits.estimate(setup, baseline, training, processes=processes, known=known)
    except Exception:  # whatever a user's method raises
        return None


def _published(training: Training, done: Progress) -> int:
    """As papers count: what is sent goes down to everybody and up from the sampled."""
    clients, share = training.setting.clients, training.setting.fraction
    cohorts = [line["cohort"] for line in done.history]
    rounds = zip(done.traffic.down, done.traffic.up, cohorts, strict=True)
    return sum(published(*sent, clients, share) for sent in rounds)


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
