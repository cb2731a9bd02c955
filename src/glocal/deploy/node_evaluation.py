"""What each client of a node has of a deployment: its row, on its own test data."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from glocal.core import files
from glocal.core.types import Params, Tree
from glocal.deploy.plan import DeployPlan
from glocal.evaluation.client_tests import ClientTest
from glocal.evaluation.evaluate import outcomes, pick
from glocal.evaluation.summary import client_table, summarise
from glocal.evaluation.trials import Trial
from glocal.experiment.adaptation import techniques
from glocal.experiment.adaptation_report import adapt_clients, add_adapted
from glocal.experiment.run import without_baseline
from glocal.experiment.runner import baseline_of, run_seed
from glocal.experiment.setup import Setup
from glocal.training.checkpoint import CheckpointPolicy
from glocal.training.loop import Training
from glocal.training.run_state import Progress

FILE = "result.json"
"""In a node's folder: the rows of its clients."""


def rows(
    plan: DeployPlan,
    setup: Setup,
    training: Training,
    progress: Progress,
    down: Tree,
    folder: Path,
) -> list[dict[str, Any]]:
    """Of each client its ``row``, as a simulation's by own test splits, and its ``tests``.

    Intervals and verdicts of a row are by what this node's clients know; those of all clients are
    made of the tests' figures (:func:`glocal.evaluation.client_tests.verdicts_of`).
    """
    config, task, fed, engine = plan.config, setup.task, setup.fed, setup.engine
    models = training.models(progress, down)
    same = training.one_for_all(progress)
    outcome = outcomes(task, fed, engine, models, pool=False, one_for_all=same)
    baseline = outcome
    if config.baseline != "none":
        policy = CheckpointPolicy(folder / "alone", stop=lambda: False)
        baseline = run_seed(baseline_of(config), setup, checkpoints=policy).outcome
    trials = [Trial(fed, outcome, baseline)]
    tests = {"": ClientTest.of(trials[0], config.same)}
    table = client_table(trials, config.same)
    if config.adapt is not None:
        where = (task, fed, engine, techniques(config.adapt))
        given = partial(_chosen, training, models)
        # Fisher information stays where it is computed.
        adapted = adapt_clients(*where, given, setup.seed, private=True)
        changed = replace(trials[0], outcome=adapted.outcome)
        tests["adapted_"] = ClientTest.of(changed, config.same)
        add_adapted(table, summarise(table, trials), trials, [adapted], config.same)
    if config.baseline == "none":
        without_baseline(table, {})
        tests = {}
    return [
        {"row": _plain(row), "tests": {name: asdict(each[k]) for name, each in tests.items()}}
        for k, row in enumerate(table)
    ]


def _chosen(training: Training, models: Any, ids: Tensor) -> Params:
    """The models that clients picked on their validation data."""
    t = training
    return pick(t.task, t.fed, t.engine, models(ids), ids)[0]


def _plain(value: Any) -> Any:
    """A cell as JSON holds it; NaN stays what it is."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, Tensor):
        return _plain(value.tolist())
    if isinstance(value, bool | int | str | None):
        return value
    return float(value)


def write(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Keep the rows here, for the participant."""
    files.make_folder(folder)
    files.write(folder / FILE, files.dump(files.plain({"clients": rows})))
