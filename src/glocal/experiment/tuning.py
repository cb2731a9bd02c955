"""The learning rate and the number of rounds, chosen on validation data; then trained again.

A method is trained at a few learning rates, side by side with all of its repeats, and validated at
about ten evenly spaced rounds. In each repeat the rate and the round win that are best by the mean
over clients of the metric that counts (ties: the lower loss, then the earlier round). With these it
is trained again from the same seeds on training and validation data, its schedules those of all
rounds. What
was known of validation data before stays what is known of it: each client's score, by which
others may choose, and the candidate that it picked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from glocal.evaluation.measures import Measure, named
from glocal.evaluation.scores import Scores
from glocal.experiment.chosen import with_validation
from glocal.experiment.setup import Setup
from glocal.methods.specs import leaves_rate_open
from glocal.slots.method import Method, Plan
from glocal.training.best_round import rank
from glocal.training.checkpoint import CheckpointWriter
from glocal.training.loop import Training
from glocal.training.resumed import RoundsEnd, run_rounds
from glocal.training.run_state import Progress
from glocal.training.side_by_side import LaneGroup

RATES = (1 / 3, 1.0, 3.0)
"""What a method's own learning rate is multiplied by."""

ACCURACY = named("accuracy")

POINTS = 10
"""Rounds, evenly spaced, after which a training may end."""


CURVES = ("train_", "val_")
"""How the names of what is recorded of an evaluation begin."""


def rates_of(method: str | Method | Plan) -> tuple[float, ...]:
    """The factors that are tried: none but 1 where the user has said what the rate is."""
    return RATES if isinstance(method, str) and leaves_rate_open(method) else (1.0,)


def why_not(plan: Plan) -> str | None:
    """Why nothing of a plan can be chosen on validation data, if so."""
    if plan.stages[0].method.private:
        return "choosing and training again would spend the privacy budget again"
    if any(stage.goal is not None for stage in plan.stages):
        return "a stage ends by validation data, which would be trained on"
    return None


@dataclass(frozen=True)
class Choice:
    """What one repeat chose, and what validation data said of it."""

    factor: float
    """On the method's own learning rate."""
    round: int
    scores: Scores
    """[clients] on validation data."""
    picks: tuple[str, ...]
    """The candidate of each client."""
    validation: dict[int, dict[str, float]]
    """What was recorded at this rate, by round."""
    gradients: int = 0
    """What all rates together computed."""
    seconds: float = 0.0
    trained: int = 0
    """Rounds at this rate: with patience, not all."""

    def training(self, again: Training, turns: tuple[int, ...]) -> Training:
        """A training with what was chosen."""
        chosen = replace(again, rate=self.factor, stop=self.round, validation=self.validation)
        return replace(chosen, turns=turns, patience=None)


def tried(training: Training, factor: float, turns: tuple[int, ...]) -> Training:
    """A training at a rate, with what choosing needs recorded."""
    every = training.validate_every or max(1, training.last // POINTS)
    return replace(training, rate=factor, validate_every=every, by_client=True, turns=turns)


def search(
    trainings: Sequence[Training],
    keeper: CheckpointWriter | None,
    on_round: Callable[[int, Progress], None],
) -> list[RoundsEnd]:
    """Trainings side by side; one whose rate is too high ends where it diverges."""
    group = LaneGroup.of(trainings)
    return run_rounds(group, lambda r, done, _: on_round(r, done), keeper, may_fail=True)


def choose(
    factors: Sequence[float], ends: Sequence[RoundsEnd], measure: Measure = ACCURACY
) -> Choice:
    """The best rate and round of one repeat, from where it ended at each rate."""
    points = [
        (*ranked, -line["round"], i)
        for i, end in enumerate(ends)
        for line in end.progress.history
        if (ranked := rank(measure, line)) is not None
    ]
    if not points:
        raise next(end.error for end in ends if end.error is not None)
    *_, minus_round, i = max(points)
    history = ends[i].progress.history
    value, picks, loss, error = history[-minus_round - 1]["clients"]
    scores = Scores(
        torch.tensor(value), torch.tensor(loss), None if error is None else torch.tensor(error)
    )
    name = f"val_{measure.name}"
    return Choice(
        factors[i],
        -minus_round,
        scores,
        tuple(picks),
        {
            line["round"]: {k: v for k, v in line.items() if k.startswith(CURVES)}
            for line in history[:-minus_round]
            if name in line
        },
        sum(line.get("gradients", 0) for end in ends for line in end.progress.history),
        sum(end.seconds for end in ends),
        len(history),
    )


def again(setup: Setup) -> Setup:
    """In what it is trained again; where clients adapt by validation data, that is left to them."""
    if setup.config.adapt is not None:
        return setup
    return replace(setup, fed=with_validation(setup.fed))


def recorded(choice: Choice | None, plan: Plan, rates: int, refitted: bool) -> dict[str, Any]:
    """What a record says was chosen, and why not more."""
    if choice is None:
        return {"why_not": why_not(plan)}
    lr = plan.stages[0].method.local.opt.lr
    # Without the last digits of a product, as somebody would type it.
    facts: dict[str, Any] = {"rate": float(f"{lr * choice.factor:.6g}"), "round": choice.round}
    if rates == 1:
        facts["why_not"] = "the rate was given"
    if not refitted:
        facts["why_not"] = "adapting chooses on validation data, which is not trained on therefore"
    return facts
