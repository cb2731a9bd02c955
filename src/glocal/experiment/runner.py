"""One repeat of one method on one split and seed: what fits, process pools and studies call.

There are two runners, chosen once for a method: :class:`LocalOnly`, whose clients never meet a
server (the local baseline is one), and :class:`Federated`. :func:`run_seed` runs one repeat of
either, :func:`run_seeds` all of them, side by side where that fits into memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from glocal.experiment import memory_estimate as limits
from glocal.experiment import setup as setups
from glocal.experiment import tuning
from glocal.experiment.baseline import known_by
from glocal.experiment.best_runner import BestAlone
from glocal.experiment.callbacks import NOBODY, Callbacks, Line
from glocal.experiment.config import Config
from glocal.experiment.federated_runner import Federated
from glocal.experiment.local_runner import LocalOnly
from glocal.experiment.repeat import (
    Repeat,
)
from glocal.experiment.setup import Setup
from glocal.methods import resolve
from glocal.methods.local import LocalTraining
from glocal.slots.method import Method, Plan, as_plan
from glocal.training.checkpoint import CheckpointPolicy

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
    "tries",
]


Runner = LocalOnly | Federated
"""The runners of methods."""

AnyRunner = Runner | BestAlone


def runner_of(name: str, method: str | Method | Plan) -> Runner:
    """The runner of a method, by what its clients do."""
    plan = as_plan(resolve(method) if isinstance(method, str) else method)
    client = plan.stages[0].method.local if len(plan.stages) == 1 else None
    if isinstance(client, LocalTraining):
        return LocalOnly(name, client)
    return Federated(name, plan, tuning.rates_of(method))


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
    callbacks: Callbacks = NOBODY,
    checkpoints: CheckpointPolicy | None = None,
) -> Repeat:
    """One repeat of a method, resumed where there are checkpoints of it."""
    with setup.threads():
        return runner.run(setup, callbacks, checkpoints)


def run_seeds(
    runner: AnyRunner,
    setups: Sequence[Setup],
    callbacks: Callbacks = NOBODY,
    checkpoints: CheckpointPolicy | None = None,
    *,
    lanes: int | None = None,
) -> list[Repeat]:
    """All repeats of a method; of all but the first, the figures without the models.

    ``lanes`` trainings go side by side (by default as many as fit into memory), the others after
    them, in groups; those that were begun before, grouped as they were.
    """
    by_repeat = {setup.repeat: setup for setup in setups}
    results: list[Repeat] = []
    if not isinstance(runner, Federated):
        lanes = len(setups)
    elif lanes is None:
        most = len(setups) * tries(runner, setups[0].config)
        lanes = limits.lanes(memory_needed(runner, setups[0]), setups[0].fed.x.device, most)
    for some in groups(runner, list(by_repeat), lanes, checkpoints):
        together = [by_repeat[r] for r in some]
        with together[0].threads():
            several = (together, callbacks, checkpoints)
            if isinstance(runner, Federated):
                repeats = runner.run_side_by_side(*several, lanes)
            else:
                repeats = runner.run_side_by_side(*several)
            for repeat in repeats:
                first = not results and some[0] == 0
                results.append(repeat if first else repeat.figures())
    return results


def tries(runner: Runner, config: Config) -> int:
    """How many trainings of a repeat may go side by side."""
    return max(1, len(runner.tries(config))) if isinstance(runner, Federated) else 1


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
