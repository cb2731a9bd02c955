"""Equal budgets: rounds by which all methods compute as many gradients as the first of them.

Some methods take five times the gradients of others in a round (:mod:`glocal.engines.gradients`),
and more training alone makes a model better. With B the gradients of the first federated method in
its rounds, every other one trains for

    T = the number of rounds whose gradients are nearest to B, at least 1

as expected where clients are sampled. So no method is further from B than half of its rounds'
gradients, unless a single round takes more than B. ``local`` is left as it is: it stops when it
gains nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping

from glocal.core.errors import GlocalError
from glocal.core.spec import split_plus
from glocal.data.federation import Federation
from glocal.experiment import setup as setups
from glocal.experiment.config import Config
from glocal.experiment.runner import runner_of
from glocal.slots.method import Method, Plan, as_plan
from glocal.training.loop import Training

BUDGETS = ("rounds", "equal")
"""What methods have in common: rounds, or gradients."""

MOST_ROUNDS = 1_000_000


def check_budget(budget: str) -> None:
    """Refuse what is no budget."""
    if budget not in BUDGETS:
        raise GlocalError(f"budget must be one of {', '.join(BUDGETS)}, not {budget!r}.")


def equal(
    methods: Mapping[str, str | Method | Plan], config: Config, fed: Federation
) -> dict[str, tuple[str, str | Method | Plan]]:
    """Each method's new name and what it names: with rounds of its own, where they are others."""
    setup = setups.make(config, fed, 0)
    matched: dict[str, tuple[str, str | Method | Plan]] = {}
    goal: float | None = None
    for name, method in methods.items():
        runner = runner_of(name, method)
        training = runner.check(setup)
        if training is None:
            matched[name] = (name, method)
            continue
        if goal is None:
            goal = expected(training, training.rounds)
            matched[name] = (name, method)
            continue
        if training.plan.rounds is not None:
            raise GlocalError(
                f"an equal budget says how many rounds {name} has: leave its rounds= out."
            )
        rounds = nearest(training, goal)
        if rounds == config.rounds:
            matched[name] = (name, method)
        elif isinstance(method, str):
            spec = with_rounds(method, rounds)
            matched[name] = (spec, spec)
        else:
            plan = as_plan(method)
            matched[name] = (name, Plan(plan.stages, rounds))
    return matched


def expected(training: Training, rounds: int) -> float:
    """The gradients that all clients compute in so many rounds; a goal may end a stage earlier."""
    total, left, stages = 0.0, rounds, training.plan.stages
    for stage, of_clients in zip(stages, training.gradients, strict=True):
        length = None if stage is stages[-1] else stage.length(rounds)
        lasts = left if length is None else min(length, left)
        total += lasts * training.setting.fraction * float(of_clients.sum())
        left -= lasts
    return total


def nearest(training: Training, gradients: float) -> int:
    """The number of rounds, from 1 up, whose gradients are nearest to so many."""
    low, high = 1, 2
    while expected(training, high) < gradients and high < MOST_ROUNDS:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if expected(training, middle) < gradients:
            low = middle
        else:
            high = middle
    return min(low, high, key=lambda rounds: abs(expected(training, rounds) - gradients))


def with_rounds(spec: str, rounds: int) -> str:
    """The spec whose base has ``rounds``."""
    base, *components = (part.strip() for part in split_plus(spec))
    inside = base[:-1].strip() if base.endswith(")") else f"{base}("
    comma = "" if inside.endswith("(") else ", "
    return "+".join([f"{inside}{comma}rounds={rounds})", *components])
