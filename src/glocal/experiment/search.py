"""Settings of a method chosen on validation data, by successive halving.

All candidates train for a few rounds, the best third goes on for three times as many, and so forth,
until the last train for all rounds (Jamieson & Talwalkar, 2016; a third as in Li et al.,
Hyperband, 2018). Schedules are those of all rounds, and who goes on goes on from where it stood.
Candidates that differ in their learning rate alone are lanes of one program, with all of their
repeats. Test data has no say in it.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from glocal.core import rng
from glocal.core.errors import GlocalError, shown
from glocal.data.federation import Federation
from glocal.evaluation.measures import has_no_value, of_task
from glocal.experiment import memory_estimate as limits
from glocal.experiment import setup as setups
from glocal.experiment.callbacks import NOBODY, Callbacks
from glocal.experiment.config import Config
from glocal.experiment.federated_runner import Federated
from glocal.experiment.runner import memory_needed, runner_of
from glocal.experiment.setup import Setup
from glocal.methods.specs import resolve, with_setting
from glocal.slots.method import as_plan
from glocal.training import plateau
from glocal.training.checkpoint import CheckpointPolicy
from glocal.training.loop import Training
from glocal.training.resumed import RoundsEnd, run_rounds
from glocal.training.run_state import Progress
from glocal.training.side_by_side import LaneGroup

KEPT = 3
"""One of so many goes on."""

RATE = "lr"
"""The setting that lanes of one program may differ in."""


@dataclass
class Trial:
    """A candidate, and how far it came."""

    settings: dict[str, Any]
    spec: str
    rounds: int = 0
    """Those it was trained for."""
    validation: float | None = None
    """Clients' mean of the metric that counts after the last of them; None: it diverged."""
    score: float = -math.inf
    """The same such that higher is better."""
    loss: float = math.inf
    steps: list[tuple[int, float]] = field(default_factory=list)
    """What validation data says after each step of the search, by round."""

    @property
    def rank(self) -> tuple[float, float]:
        """The higher, the better: by the metric, then by the loss."""
        return self.score, -self.loss


@dataclass(frozen=True)
class Tuned:
    """What a search came to."""

    method: str
    metric: str
    """What they were chosen by."""
    spec: str
    """The method with the settings that were chosen."""
    settings: dict[str, Any]
    trials: tuple[Trial, ...]
    """All candidates, the best first."""
    rounds: int
    """All rounds of all candidates together, in each repeat."""
    gradients: int
    """Of one example each, by all clients and candidates, in all repeats together."""


def steps_of(rounds: int, candidates: int) -> list[tuple[int, int]]:
    """The rounds and the candidates of each step: ``[(2, 9), (6, 3), (18, 1)]``."""
    halvings = min(_whole_log(candidates), _whole_log(rounds))
    return [
        (-(-rounds // KEPT ** (halvings - i)), -(-candidates // KEPT**i))
        for i in range(halvings + 1)
    ]


def _whole_log(n: int) -> int:
    """How often ``n`` can be divided by :data:`KEPT` and stay one or more."""
    return next(k for k in itertools.count() if KEPT ** (k + 1) > n)


def candidates(
    method: str, space: Mapping[str, Sequence[Any]], most: int | None, seed: int
) -> list[Trial]:
    """Every combination of a space, or ``most`` of them, drawn by the seed."""
    if not space:
        raise GlocalError("there is nothing to choose from: give a setting and its values.")
    if "rounds" in space:
        raise GlocalError(
            "rounds are what every candidate is given alike, so nobody can choose from them: leave "
            "them out of the space, and set them by rounds=."
        )
    for name, values in space.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise GlocalError(
                f"{name} takes a list of values to choose from, as in [0.1, 0.3], not "
                f"{shown(values)}."
            )
    if most is not None and most < 1:
        raise GlocalError(f"trials must be 1 or more, not {most}.")
    combinations = list(itertools.product(*space.values()))
    if most is not None and most < len(combinations):
        drawn = torch.randperm(len(combinations), generator=_generator(seed))[:most]
        combinations = [combinations[i] for i in sorted(drawn.tolist())]
    trials = []
    for values in combinations:
        settings, spec = dict(zip(space, values, strict=True)), method
        for name, value in settings.items():
            spec = with_setting(spec, name, value)
        trials.append(Trial(settings, spec))
    return trials


def _generator(seed: int) -> torch.Generator:
    drawn = rng.seed_of(rng.fold(rng.key(seed), 0x7E1E))
    return torch.Generator().manual_seed(drawn % 2**63)


def search(
    method: str,
    space: Mapping[str, Sequence[Any]],
    config: Config,
    fed: Federation,
    *,
    most: int | None = None,
    callbacks: Callbacks = NOBODY,
    checkpoints: CheckpointPolicy | None = None,
) -> Tuned:
    """Choose a method's settings on validation data.

    Args:
        method: its spec, without the settings that are chosen.
        space: a list of values for each setting.
        config: how each is trained; ``repeats`` of each, whose mean counts.
        fed: the clients' data.
        most: how many combinations are tried, drawn by the seed; all of them by default.
        callbacks: told how far it is.
        checkpoints: where they go; if there are some of the same search, it goes on from them.
    """
    trials = candidates(method, space, most, config.seed)
    every = [setups.make(config, fed, r) for r in range(config.repeats)]
    groups = [Candidates.of(some, every) for some in _lanes(trials)]
    alive, rounds, gradients = list(trials), 0, 0
    for step, (until, left) in enumerate(steps_of(groups[0].rounds, len(trials))):
        alive = sorted(alive, key=lambda trial: trial.rank, reverse=True)[:left]
        before = sum(trial.rounds for trial in alive)
        for number, group in enumerate(groups):
            name = f"{number + 1}-step-{step + 1}"
            gradients += group.train(alive, until, callbacks, checkpoints, name)
        rounds += sum(trial.rounds for trial in alive) - before
        if not any(group.valued for group in groups) and any(
            t.validation is not None for t in alive
        ):
            raise GlocalError(has_no_value(every[0].metric, "validation"))
    best = max(alive, key=lambda trial: trial.rank)
    if best.validation is None:
        raise GlocalError(
            f"{method} diverges with every setting that was tried: add lower learning rates."
        )
    ordered = sorted(trials, key=lambda trial: (trial.rounds, *trial.rank), reverse=True)
    metric = every[0].metric
    return Tuned(method, metric, best.spec, best.settings, tuple(ordered), rounds, gradients)


def _lanes(trials: Sequence[Trial]) -> list[list[Trial]]:
    """Candidates by all of their settings but the rate, where that is the clients'."""
    found: dict[str, list[Trial]] = {}
    for trial in trials:
        apart = RATE if _is_of_clients(trial) else None
        others = {k: v for k, v in trial.settings.items() if k != apart}
        found.setdefault(json.dumps(others, default=str), []).append(trial)
    return list(found.values())


def _is_of_clients(trial: Trial) -> bool:
    """Whether the rate is that of the clients' steps, which a lane has of its own."""
    stages = as_plan(resolve(trial.spec)).stages
    steps = [getattr(stage.method.local, "opt", None) for stage in stages]
    return all(opt is not None and opt.lr == trial.settings.get(RATE) for opt in steps)


@dataclass
class Candidates:
    """Those that differ in their learning rate alone, in all repeats: lanes of one program."""

    trials: list[Trial]
    setups: list[Setup]
    runner: Federated
    trainings: list[Training]
    """Of each repeat, at the first candidate's rate."""
    progress: dict[tuple[int, int], Progress] = field(default_factory=dict)
    """Where each candidate stands in each repeat."""
    valued: bool = False
    """Whether any client had a value of the metric with any candidate."""

    @classmethod
    def of(cls, trials: list[Trial], every: list[Setup]) -> Candidates:
        """What cannot be trained is refused."""
        runner = runner_of(trials[0].spec, trials[0].spec)
        if not isinstance(runner, Federated):
            raise GlocalError(
                f"{trials[0].spec} trains alone, and each client chooses its own rate and epochs: "
                "give a federated method."
            )
        if runner.private:
            raise GlocalError(
                "every candidate would spend privacy that nobody counts: choose without dp."
            )
        return cls(trials, every, runner, [runner.check(setup) for setup in every])

    @property
    def rounds(self) -> int:
        """Those of all, which the last candidate trains for."""
        return self.trainings[0].rounds

    def train(
        self,
        alive: Sequence[Trial],
        until: int,
        callbacks: Callbacks,
        checkpoints: CheckpointPolicy | None,
        name: str,
    ) -> int:
        """Train those that are alive up to a round, and validate them; the gradients of it."""
        places = [i for i, trial in enumerate(self.trials) if any(trial is a for a in alive)]
        cells = [(i, r) for i in places for r in range(len(self.setups))]
        gradients = 0
        for number, some in enumerate(self._fitting(cells)):
            keeper = None
            if checkpoints is not None:
                of = f"{[self.trials[i].spec for i, _ in some]} {until} {self._known_by()}"
                keeper = checkpoints.rounds(number, of, None, f"search-{name}-part")
            trainings = [self._training(i, r, until, len(cells)) for i, r in some]

            def on_round(r: int, done: Progress, lines: Any) -> None:
                if r == 0:
                    callbacks.report(f"{self.trials[0].spec}, choosing", done.round, until)

            group = LaneGroup.of(trainings)
            begun = [self.progress[cell] for cell in some] if some[0] in self.progress else None
            ends = run_rounds(group, on_round, keeper, may_fail=True, begun=begun)
            for cell, end in zip(some, ends, strict=True):
                self.progress[cell] = end.progress
                gradients += _gradients(end, after=self.trials[cell[0]].rounds)
            self._note(some, ends, until)
        for i in places:
            self.trials[i].rounds = until
        return gradients

    def _training(self, place: int, repeat: int, until: int, lanes: int) -> Training:
        first, own = self.trials[0].settings.get(RATE), self.trials[place].settings.get(RATE)
        rate = 1.0 if first is None or own is None else own / first
        training = self.trainings[repeat]
        # Candidates are compared where a step of the search ends, and nowhere else.
        every = training.validate_every if plateau.is_used(training.plan) else 0
        training = replace(training, validate_every=every, patience=None)
        return replace(training, rate=rate, stop=until, by_client=True, turns=(lanes,))

    def _fitting(self, cells: list[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
        """As many as fit into memory side by side; all repeats of a candidate go together."""
        device, repeats = self.setups[0].fed.x.device, len(self.setups)
        need = memory_needed(self.runner, self.setups[0])
        size = limits.lanes(need, device, len(cells)) // repeats * repeats or repeats
        for start in range(0, len(cells), size):
            yield cells[start : start + size]

    def _note(self, some: Sequence[tuple[int, int]], ends: Sequence[RoundsEnd], until: int) -> None:
        """What validation data says of these candidates: the mean over repeats."""
        measure = of_task(self.setups[0].task)
        for i in dict.fromkeys(i for i, _ in some):
            of_trial = [end for (j, _), end in zip(some, ends, strict=True) if j == i]
            lines = [end.progress.history[-1] if end.error is None else {} for end in of_trial]
            values = [float(line.get(f"val_{measure.name}", math.nan)) for line in lines]
            of_clients = [value for line in lines for value in line.get("clients", [[]])[0]]
            self.valued = self.valued or any(map(math.isfinite, of_clients))
            losses = [float(line.get("val_loss", math.nan)) for line in lines]
            trial = self.trials[i]
            if all(map(math.isfinite, values + losses)):
                trial.validation = sum(values) / len(lines)
                trial.score, trial.loss = measure.sign * trial.validation, sum(losses) / len(lines)
                trial.steps.append((until, trial.validation))
            else:
                trial.validation, trial.score, trial.loss = None, -math.inf, math.inf

    def _known_by(self) -> str:
        return "; ".join(self.runner.known_by(setup) for setup in self.setups)


def _gradients(end: RoundsEnd, after: int) -> int:
    lines = end.progress.history[after:]
    return sum(line.get("gradients", 0) for line in lines)
