"""What each client of a node has of a deployment: its row, on its own test data."""

from __future__ import annotations

import copy
import json
import shutil
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glocal.core import files, tree
from glocal.core.types import Params, Tree
from glocal.deploy.plan import DeployPlan
from glocal.evaluation.client_tests import ClientTest
from glocal.evaluation.evaluate import outcomes, pick
from glocal.evaluation.summary import client_table, summarise
from glocal.evaluation.trials import Trial
from glocal.experiment.adaptation import techniques
from glocal.experiment.adaptation_report import add_adapted
from glocal.experiment.adapted_clients import adapt_clients
from glocal.experiment.result_files import slug
from glocal.experiment.run import described, without_baseline
from glocal.experiment.runner import baseline_of, run_seed
from glocal.experiment.setup import Setup
from glocal.prediction.client_model import ClientModel
from glocal.training.checkpoint import CheckpointPolicy
from glocal.training.loop import Training
from glocal.training.run_state import Progress

FILE = "result.json"
"""In a node's folder: the rows of its clients."""

MODELS = "models"
"""In a node's folder: the model of each client, for ``glocal predict``."""


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
    given = partial(_chosen, training, models)
    used = given(torch.arange(len(fed), device=fed.x.device))
    if config.adapt is not None:
        where = (task, fed, engine, techniques(config.adapt))
        # Fisher information stays where it is computed.
        adapted = adapt_clients(*where, given, setup.seed, private=True, keep=True)
        used = adapted.models or used
        changed = replace(trials[0], outcome=adapted.outcome)
        tests["adapted_"] = ClientTest.of(changed, config.same)
        add_adapted(table, summarise(table, trials), trials, [adapted], config.same)
    if config.baseline == "none":
        without_baseline(table, {})
        tests = {}
    save_models(plan, setup, used, folder / MODELS)
    return [
        {"row": _plain(row), "tests": {name: asdict(each[k]) for name, each in tests.items()}}
        for k, row in enumerate(table)
    ]


def save_models(plan: DeployPlan, setup: Setup, models: Params, folder: Path) -> None:
    """The model that each client has now, as a folder of its own, which needs no other file."""
    about = described(setup, setup.fed, plan.method)
    for k, name in enumerate(setup.fed.names):
        module = copy.deepcopy(setup.task.module).cpu()
        module.load_state_dict(tree.to(tree.row(models, k), "cpu"), strict=False)
        model = ClientModel(
            name, module.eval(), replace(about, client=name), plan.schema.preprocessing
        )
        place = folder / f"{k + 1}-{slug(name)}"
        shutil.rmtree(place, ignore_errors=True)  # of an evaluation that was interrupted
        model.save(place)


def _chosen(training: Training, models: Any, ids: Tensor) -> Params:
    """The models that clients picked on their validation data."""
    t = training
    return pick(t.task, t.fed, t.engine, models(ids), ids)[0]


def _plain(value: Any) -> Any:
    """A cell as JSON holds it; NaN stays what it is."""

    def number(cell: Any) -> Any:
        return cell.tolist() if isinstance(cell, Tensor) else float(cell)

    return json.loads(json.dumps(value, default=number))


def write(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Keep the rows here, for the participant."""
    files.make_folder(folder)
    files.write(folder / FILE, files.dump(files.plain({"clients": rows})))
