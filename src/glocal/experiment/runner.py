"""One repeat of one method on one split and seed: what fits, process pools and studies call.

There are two runners, chosen once for a method: :class:`LocalOnly`, whose clients never meet a
server (the local baseline is one), and :class:`Federated`. :func:`run_seed` runs either.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from glocal.core.errors import ClientError, GlocalError
from glocal.core.interrupts import Stopped
from glocal.core.progress import Report, silent
from glocal.core.validation import positive_integers
from glocal.evaluation.communication import published
from glocal.experiment import ensemble
from glocal.experiment import memory_estimate as limits
from glocal.experiment import setup as setups
from glocal.experiment.adaptation import techniques
from glocal.experiment.adaptation_report import adapt_clients
from glocal.experiment.baseline import gradients_of, known_by
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
from glocal.methods import resolve
from glocal.methods.local import LocalTraining
from glocal.slots.method import Method, Plan, as_plan
from glocal.slots.server_half import whole_model
from glocal.training.checkpoint import CheckpointPolicy, CheckpointWriter, packed, reclaim, unpacked
from glocal.training.client_state.placement import Storage
from glocal.training.loop import Progress, Training
from glocal.training.sampling import Fixed, Fraction, Poisson, Sampler

Line = dict[str, Any]
"""A round of a method's history."""


@dataclass(frozen=True)
class Callbacks:
    """Who is told how training goes on."""

    report: Report = silent
    """Called with what is trained, how much of it is done, and how much there is."""
    on_line: Callable[[str, Line], None] = lambda name, line: None
    """Called with a method's name and each line of its history, again where a run is resumed."""
    on_round: Callable[[Progress], None] = lambda progress: None
    """Called with where the training stands after each round."""


@dataclass(frozen=True)
class LocalOnly:
    """Every client trains alone."""

    name: str
    client: LocalTraining

    def check(self, setup: Setup) -> Training | None:
        """Refuse what does not fit: nothing is trained together, so nothing can."""
        if setup.config.attack is not None:
            raise GlocalError(
                "local sends nothing, so no attack can reach it: leave the attack out."
            )
        return None

    def run(
        self, setup: Setup, callbacks: Callbacks, checkpoints: CheckpointPolicy | None
    ) -> Repeat:
        """One repeat."""
        config, task, keeper = setup.config, setup.task, None
        storage = Storage(config.states, what="the local baseline's models")
        if checkpoints is not None:
            code = digest(task.module, task.losses, task.augment)
            of = f"alone {code} {setup.digest} {known_by(self.client)}"
            keeper = checkpoints.epochs(setup.repeat, of)
            folder = keeper.series.folder
            storage = Storage(config.states, folder, checkpoints.note, storage.what)
        report = partial(callbacks.report, setup.title("alone"))
        baseline, outcome = setups.measured(setup, self.client, report, keeper, storage)
        together = None
        if config.new_test:
            models = baseline.models.rows_of
            together = ensemble.own_models(task, setup.fed, setup.engine, models)
        states, on_disk = contents(baseline.models, final=True)
        return Repeat(
            outcome,
            baseline.val_accuracy,
            setup.engine.executed,
            states=states,
            gradients=gradients_of(self.client, baseline, setup.fed),
            seconds=baseline.seconds,
            together=together,
            on_disk=on_disk,
        )


@dataclass(frozen=True)
class Federated:
    """Clients train together, and then adapt what they got, where that was asked for."""

    name: str
    plan: Plan

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
            technique.check(setup.task, config.public)
        if config.public is not None:
            check_public(config.public, setup.fed)
        for stage in self.plan.stages:
            stage.method.check(setup.task, setup.fed, training.setting)
        return training

    def run(
        self, setup: Setup, callbacks: Callbacks, checkpoints: CheckpointPolicy | None
    ) -> Repeat:
        """One repeat."""
        config, training, keeper = setup.config, self.check(setup), None
        if checkpoints is not None:
            keeper = checkpoints.rounds(setup.repeat, self._known_by(setup))
            storage = Storage(config.states, keeper.series.folder, checkpoints.note)
            training = replace(training, storage=storage)

        def on_round(done: Progress, new: list[Line]) -> None:
            callbacks.report(setup.title(self.name), done.round, training.rounds)
            for line in new:
                of_several = {"repeat": setup.repeat + 1} if config.repeats > 1 else {}
                callbacks.on_line(self.name, {**line, **of_several})
            callbacks.on_round(done)

        began = time.monotonic()
        done, stopped = _rounds(training, on_round, keeper)
        seconds = time.monotonic() - began
        executed = setup.engine.executed  # before anything else is trained
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
                *where, trained.models, setup.seed, public=config.public, tick=tick
            )
        states, on_disk = contents(done.clients)
        privacy = training.method(done).privacy
        return Repeat(
            outcome,
            val_accuracy,
            executed,
            traffic=done.traffic,
            model=whole_model(setup.task, done.server),
            states=states,
            history=done.history,
            published=_published(training, done),
            gradients=sum(line.get("gradients", 0) for line in done.history),
            seconds=seconds,
            together=ensemble.new_test(trained) if config.new_test else None,
            adapted=adapted,
            trained=trained,
            struck=struck(training, setup, trained.models, stopped),
            privacy=privacy.spent(done.server["privacy"], training.setting) if privacy else None,
            made=made(training, done, setup.fed),
            on_disk=on_disk,
        )

    def _known_by(self, setup: Setup) -> str:
        """What a checkpoint must be of, to be taken for this repeat's."""
        config, task = setup.config, setup.task
        code = digest(self.plan, task.module, task.losses, task.augment)
        about = {**config.trained(), "validate_every": config.validate_every}
        return f"{self.name} {code} {setup.digest} {about}"

    def restored(self, setup: Setup, repeat: Repeat) -> Repeat:
        """A repeat that came without its training, with it again, to be evaluated further."""
        training, states = self.check(setup), dict(repeat.states)
        stages = [line.get("stage") for line in repeat.history]
        progress = progress_of(training, repeat.model, states.pop("ids"), states, stages)
        progress = replace(progress, traffic=repeat.traffic, history=repeat.history)
        return replace(repeat, trained=Trained(training, progress))


Runner = LocalOnly | Federated


def runner_of(name: str, method: str | Method | Plan) -> Runner:
    """The runner of a method, by what its clients do."""
    plan = as_plan(resolve(method) if isinstance(method, str) else method)
    client = plan.stages[0].method.local if len(plan.stages) == 1 else None
    return LocalOnly(name, client) if isinstance(client, LocalTraining) else Federated(name, plan)


def baseline_of(config: Config, runner: Runner | None = None) -> LocalOnly:
    """The local baseline, or that of a method: clients who train alone are their own."""
    if isinstance(runner, LocalOnly):
        return runner
    return LocalOnly("alone", setups.baseline(config.baseline))


def run_seed(
    runner: Runner,
    setup: Setup,
    callbacks: Callbacks | None = None,
    checkpoints: CheckpointPolicy | None = None,
) -> Repeat:
    """One repeat of a method, resumed where there are checkpoints of it."""
    with setup.threads():
        return runner.run(setup, callbacks or Callbacks(), checkpoints)


def memory_needed(runner: Runner, setup: Setup, processes: int = 1) -> limits.Estimate | None:
    """The memory that all repeats will take, beyond what is taken already.

    None if that cannot be found out: something in the method or the model fails, and training will
    say where. What does not fit is refused.
    """
    training = runner.check(setup)
    baseline = baseline_of(setup.config, runner).client
    try:
        known = setups.is_measured(setup, baseline)
        return limits.estimate(setup, baseline, training, processes=processes, known=known)
    except Exception:  # whatever a user's method raises
        return None


def _rounds(
    training: Training,
    on_round: Callable[[Progress, list[Line]], None],
    keeper: CheckpointWriter | None,
) -> tuple[Progress, int | None]:
    """All rounds; or those until an attack left nothing finite to train, and which that was."""
    kept = keeper.last() if keeper else None
    if kept is None:
        progress = training.begin(training.task.params)
    else:
        progress = unpacked(kept, training)
        on_round(progress, progress.history)

    def after_round(done: Progress) -> None:
        on_round(done, done.history[-1:])
        if keeper is not None:
            last = done.round == training.last
            if keeper.after(done.round, lambda: packed(done), last):
                reclaim(done, training, keeper)

    try:
        return training.run(progress, after_round), None
    except ClientError:
        if keeper is not None:
            keeper.write(progress.round, lambda: packed(progress))  # the last that was good
        if training.adversary is None:
            raise
        # That the federation ends there is what was to be found out: it is evaluated as it stands.
        return progress, progress.round + 1


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
