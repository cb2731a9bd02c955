"""*Newcomers in waves*: clients arrive while a federation trains. What do they get, others lose?

:mod:`glocal.studies.newcomer.join` lets one client join when training is over, as Liang et al.,
*Think locally, act globally: federated learning with local and global representations*, 2020,
section 5.4, do. Here clients arrive in waves of a set size, each wave with a change of its own to
its data: turned images, another style, classes that nobody had before. The old clients train

1. until their mean validation accuracy reaches ``until`` (stages before the last one, such as
   LG-FedAvg's warm-up, end there, too), then for ``then`` rounds more; or for all rounds;
2. a wave arrives: each of its clients gets what the server sends, and trains by itself for
   ``own_epochs`` passes, of which nothing is sent;
3. then it takes part in ``every`` rounds, in all of them, with a ``fraction`` of those who were
   there before; then the next wave arrives, and this one is among the old.

Before a wave arrives nobody samples its clients, trains, chooses or scales on their data: the
federation that trains does not hold them. After every round all clients that are there are
evaluated on their own test splits, so that it is seen what newcomers gain and old clients forget.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean
from typing import Any

from glocal.core.errors import GlocalError
from glocal.core.progress import Report
from glocal.core.spec import parse_call, written
from glocal.core.validation import integer, positive_integers, real
from glocal.data.federation import Federation
from glocal.data.schema import needs_classes
from glocal.data.transforms import parse
from glocal.evaluation.evaluate import Models, outcomes
from glocal.experiment import setup as setups
from glocal.experiment.config import Config
from glocal.experiment.result_files import SCHEMA
from glocal.experiment.runner import baseline_of
from glocal.experiment.setup import Setup
from glocal.slots.method import Plan
from glocal.studies.newcomer import arrival
from glocal.studies.newcomer.join import runner_to_join
from glocal.studies.repeats import about, interval, unique_specs
from glocal.training.loop import Training
from glocal.training.run_state import Progress

SAME = "same"
"""The wave whose data is like that of the others."""

WAVES = ("rotate(90)", "invert", "own-classes(8, 9)")


@dataclass(frozen=True, kw_only=True)
class Arrivals:
    """Who arrives, when, and what they do first."""

    waves: tuple[str, ...] = WAVES
    """The change to the data of each wave's clients: a transform, or ``same``."""
    size: int = 2
    """Clients in a wave."""
    every: int = 10
    """Rounds from wave to wave, and after the last."""
    until: float | None = None
    """The mean validation accuracy of the old clients at which the first wave is waited for."""
    then: int = 0
    """Rounds after that."""
    own_epochs: int = 20
    """Passes over its own data of a newcomer before it sends anything."""
    fraction: float = 0.0
    """Share of those who were there before in the rounds with newcomers."""

    def __post_init__(self) -> None:
        positive_integers(size=self.size, every=self.every)
        integer(self.then, "then", 0)
        integer(self.own_epochs, "own_epochs", 0)
        if not self.waves:
            raise GlocalError("nobody arrives: give at least one wave, such as 'rotate(90)'.")
        if not 0 <= real(self.fraction, "the fraction of old clients") <= 1:
            raise GlocalError(
                f"the fraction of old clients must be from 0 to 1, not {self.fraction}."
            )
        if self.until is None and self.then:
            raise GlocalError("then= is for rounds after a goal is reached: give until=, too.")
        for wave in self.waves:
            _of_clients(wave, [0])

    @property
    def clients(self) -> int:
        """How many arrive in all."""
        return self.size * len(self.waves)


@dataclass
class Seen:
    """What was seen of one method and seed."""

    trained: int
    """Rounds until the first wave arrived."""
    reached: int | None
    """The round after which the goal was reached, where there is one and it was."""
    points: list[list[float | None]] = field(default_factory=list)
    """After each round from the arrival of the first wave on: the mean accuracy of the old clients,
    and of each wave's; None: it has not arrived yet."""
    own: list[float] = field(default_factory=list)
    """The mean accuracy of each wave's clients after they trained by themselves."""
    params_up: int = 0
    """Parameters that were sent to the server since the first wave arrived."""


def federation(config: Config, arrivals: Arrivals) -> Federation:
    """The data of all clients, the last ones those who arrive, wave by wave."""
    fed = config.federation()
    needs_classes(fed, "a study of newcomers")
    old = len(fed) - arrivals.clients
    if old < 1:
        raise GlocalError(
            f"{arrivals.clients} of {len(fed)} clients would arrive, and nobody be there before: "
            "ask for fewer or smaller waves, or for more clients."
        )
    changes = [
        _of_clients(wave, list(range(old + i * arrivals.size, old + (i + 1) * arrivals.size)))
        for i, wave in enumerate(arrivals.waves)
        if wave != SAME
    ]
    return replace(config, transforms=(*config.transforms, *changes)).federation(announced=False)


def _of_clients(wave: str, clients: Sequence[int]) -> str:
    """The transform of a wave, for its clients."""
    if wave == SAME:
        return SAME
    name, args, kwargs = parse_call(wave)
    if "clients" in kwargs:
        raise GlocalError(f"{wave} is for the clients of its wave: leave clients= out.")
    given = [*map(written, args), *(f"{k}={written(v)}" for k, v in kwargs.items())]
    theirs = f"clients=only({', '.join(map(str, clients))})"
    spec = f"{name}({', '.join([*given, theirs])})"
    parse(spec)
    return spec


def newcomers(
    methods: Sequence[str], config: Config, arrivals: Arrivals, report: Report
) -> dict[str, Any]:
    """Let waves of clients arrive with each method, on every repeat's split and seed.

    Returns plain data: per method what each wave got and what the old clients had before and after.
    """
    specs = unique_specs(methods)
    runners = {spec: runner_to_join(spec) for spec in specs}
    arrival.check_settings(config)
    fed = federation(config, arrivals)
    seen: dict[str, list[Seen]] = {spec: [] for spec in specs}
    alone: list[list[float]] = []
    baseline = baseline_of(config).client
    for r in range(config.repeats):
        setup = setups.make(config, fed, r)
        parts = _parts(setup, arrivals)
        tick = partial(report, setup.title("alone"))
        _, outcome = setups.measured(parts.newcomers(setup), baseline, tick)
        alone.append(parts.by_wave([float(c.mean()) for c in outcome.own]))
        for spec, runner in runners.items():
            if arrivals.until is not None:
                stages = tuple(replace(s, goal=arrivals.until) for s in runner.plan.stages)
                runner = replace(runner, plan=Plan(stages, runner.plan.rounds))
            training = runner.check(replace(setup, fed=parts.feds[0]))
            tick = partial(report, setup.title(spec))
            seen[spec].append(_one_seed(training, parts, arrivals, tick))
    return {
        "schema": SCHEMA,
        **about(fed, {"repeats": config.repeats, "rounds": config.rounds, "model": config.model}),
        "old_clients": len(fed) - arrivals.clients,
        "arrivals": {name: getattr(arrivals, name) for name in Arrivals.__dataclass_fields__},
        "alone": [interval(values) for values in zip(*alone, strict=True)],
        "methods": {spec: _summary(seen[spec], arrivals) for spec in specs},
    }


@dataclass(frozen=True)
class Parts:
    """A federation as it grows."""

    feds: list[Federation]
    """The old clients, then with the first wave, and so on."""
    new: Federation
    """All newcomers."""
    size: int

    def by_wave(self, values: Sequence[float]) -> list[float]:
        """The mean of each wave, of what newcomers have."""
        return [fmean(values[i : i + self.size]) for i in range(0, len(values), self.size)]

    def newcomers(self, setup: Setup) -> Setup:
        """The setup of the newcomers by themselves."""
        return replace(setup, fed=self.new, digest=f"{setup.digest} last {len(self.new)}")


def _parts(setup: Setup, arrivals: Arrivals) -> Parts:
    fed = setup.fed
    old = len(fed) - arrivals.clients
    fed = arrival.prepared_by(fed, list(range(old)))
    sizes = [old + i * arrivals.size for i in range(len(arrivals.waves) + 1)]
    feds = [arrival.some_clients(fed, list(range(n))) for n in sizes]
    return Parts(feds, arrival.some_clients(fed, list(range(old, len(fed)))), arrivals.size)


def _one_seed(
    training: Training, parts: Parts, arrivals: Arrivals, tick: Callable[[int, int], None]
) -> Seen:
    """Train the old clients, let the waves arrive, look at everybody after every round."""
    total = training.rounds + arrivals.every * len(arrivals.waves)
    progress = training.begin(training.task.params)
    seen = Seen(0, train_until(training, progress, arrivals, lambda r: tick(r, total)))
    seen.trained = progress.round
    waves, size = len(arrivals.waves), arrivals.size
    for i in range(waves):
        joint = arrival.joint(training, progress, parts.feds[i + 1], arrivals.fraction, size)
        progress = arrival.welcome(progress, joint)
        # When the wave arrives, the others are as they were after the last round.
        seen.points[i * arrivals.every :] = [_point(joint, progress, parts, waves)]
        own = arrival.own_training(joint, progress, arrivals.own_epochs)
        first = len(joint.fed) - size
        seen.own.append(fmean(_accuracies(joint, progress, own, list(range(first, first + size)))))
        for _ in range(arrivals.every):
            joint.one_round(progress)
            tick(progress.round, total)
            seen.points.append(_point(joint, progress, parts, waves))
        seen.params_up += progress.traffic.params_up
        training = joint
    return seen


def train_until(
    training: Training,
    progress: Progress,
    arrivals: Arrivals,
    tick: Callable[[int], None] = lambda number: None,
) -> int | None:
    """Train to the goal and the rounds after it, or all rounds; the round that reached the goal."""
    reached = None
    while training.goes_on(progress):
        if reached is not None and progress.round >= reached + arrivals.then:
            break
        training.one_round(progress)
        tick(progress.round)
        value = progress.history[-1].get("val_accuracy", 0.0)
        if reached is None and arrivals.until is not None and value >= arrivals.until:
            reached = progress.round
    return reached


def _point(training: Training, progress: Progress, parts: Parts, waves: int) -> list[float | None]:
    """The mean accuracy of the old clients, and of each wave's that is there."""
    models, everybody = training.models(progress), list(range(len(training.fed)))
    accuracies = _accuracies(training, progress, models, everybody)
    old = len(parts.feds[0])
    there = parts.by_wave(accuracies[old:])
    return [fmean(accuracies[:old]), *there, *[None] * (waves - len(there))]


def _accuracies(
    training: Training, progress: Progress, models: Models, clients: list[int]
) -> list[float]:
    """The accuracy of some clients, each on its own test split."""
    fed = arrival.some_clients(training.fed, clients)
    found = outcomes(
        training.task, fed, training.engine, lambda ids: models(ids + clients[0]), pool=False
    )
    return [float(right.mean()) for right in found.own]


def _summary(seen: Sequence[Seen], arrivals: Arrivals) -> dict[str, Any]:
    """What a method came to, as means over seeds."""

    def over_seeds(value: Callable[[Seen], float]) -> dict[str, Any]:
        return interval([value(s) for s in seen])

    def at(point: int, column: int) -> Callable[[Seen], float]:
        return lambda s: s.points[point][column] or 0.0

    every, waves = arrivals.every, []
    for i, wave in enumerate(arrivals.waves):
        arrives, joined = i * every, (i + 1) * every
        waves.append(
            {
                "wave": wave,
                "arrives": arrives,
                "at_once": over_seeds(at(arrives, i + 1)),
                "own_training": interval([s.own[i] for s in seen]),
                "joined": over_seeds(at(joined, i + 1)),
                "end": over_seeds(at(-1, i + 1)),
                "old_before": over_seeds(at(arrives, 0)),
                "old_after": over_seeds(at(joined, 0)),
            }
        )
    curve = []
    for t in range(len(seen[0].points)):
        there = [c for c, v in enumerate(seen[0].points[t]) if v is not None]
        curve.append({"since": t, "accuracy": [over_seeds(at(t, c)) for c in there]})
    return {
        "waves": waves,
        "old_before": over_seeds(at(0, 0)),
        "old_end": over_seeds(at(-1, 0)),
        "old_change": over_seeds(lambda s: (s.points[-1][0] or 0.0) - (s.points[0][0] or 0.0)),
        "curve": curve,
        "trained": [s.trained for s in seen],
        "reached": [s.reached for s in seen],
        "params_up": fmean(s.params_up for s in seen),
    }
