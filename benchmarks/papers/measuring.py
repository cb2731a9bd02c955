"""One cell: train as its settings say, and the figures that tables show of it.

Every kind trains with checkpoints in the cell's folder, and is resumed from them: what it comes to
does not depend on how often it was stopped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

import glocal
from glocal.core import rng
from glocal.core.files import plain
from glocal.data.federation import Federation
from glocal.evaluation import metrics, synthetic_data
from glocal.evaluation.attribute_probe import PROBES
from glocal.evaluation.evaluate import scored
from glocal.experiment import setup as setups
from glocal.experiment.callbacks import NOBODY
from glocal.experiment.config import Config, of_group
from glocal.experiment.goal import until
from glocal.experiment.repeat import Trained
from glocal.experiment.runner import runner_of
from glocal.nn import models
from glocal.nn.task import Task
from glocal.studies import fair_representations as fair
from glocal.training.checkpoint import CheckpointPolicy
from papers import beyond, newcomer, together
from papers.tables import Cell

Figures = dict[str, Any]

AT_ONCE = 10
"""Clients whose candidates are evaluated together."""


def config_of(cell: Cell, device: str) -> Config:
    """The settings of a run."""
    given = {"validate_every": 0, **cell.settings, "seed": cell.seed, "device": device}
    if device == "cpu" and not cell.measure.get("quick"):
        given.setdefault("engine", "compiled")
    given.pop("tune", None)
    return Config(**given)


def federation_of(config: Config) -> Federation:
    """The clients' data, in which the seed says who has what."""
    return config.federation(announced=False)


def measured(
    cells: Sequence[Cell], device: str, folder: Path, stop: Callable[[], bool]
) -> list[Figures]:
    """The figures of a cell, or of several that train as one.

    ``stop`` is asked after each round, and then raises ``Stopped``.
    """
    policy, first = CheckpointPolicy(folder, stop=stop), cells[0]
    if len(cells) == 1:
        return [plain(KINDS[first.kind](first, config_of(first, device), policy))]

    def made(cell: Cell) -> setups.Setup:
        config = config_of(cell, device)
        return setups.make(config, federation_of(config), 0)

    def figures(cell: Cell, setup: setups.Setup, run: glocal.Run) -> Figures:
        checked: Figures = plain(of_run(cell, setup.config, setup.fed, run))
        return checked

    return together.fitted(cells, made, policy, figures)


def run_of(cell: Cell, config: Config, fed: Federation, policy: CheckpointPolicy) -> glocal.Run:
    """A method, as its cell says."""
    given = {each.name: getattr(config, each.name) for each in of_group(*_OF_RUNS)}
    if "tune" in cell.settings:
        given["tune"] = cell.settings["tune"]
    return glocal.fit(cell.method, fed, checkpoints=policy, progress=False, **given)


def fitted(cell: Cell, config: Config, policy: CheckpointPolicy) -> Figures:
    """A method, evaluated on every client's test data."""
    fed = federation_of(config)
    return of_run(cell, config, fed, run_of(cell, config, fed, policy))


def of_run(cell: Cell, config: Config, fed: Federation, run: glocal.Run) -> Figures:
    """What tables show of a method's run."""
    repeat, summary = run.repeats[0], run.summary
    found: Figures = {
        **over_clients(repeat.outcome.metrics, repeat.outcome.metric),
        "gradients": summary["gradient_evaluations"],
        "parameters": summary["parameters"],
        "params": summary["params_published"],
        "rounds": summary["rounds"],
        "clients": len(fed),
    }
    if repeat.together is not None:
        found |= {f"new_{kind}": value for kind, value in repeat.together.items()}
        if summary.get("personal"):
            found["params"] += repeat.together["params_up"]
    if (goal := cell.measure.get("goal")) is not None:
        taken = until(repeat, goal)
        found |= {f"goal_{name}": value for name, value in (taken or {}).items()}
    if summary["benefit"] is not None:
        found |= _against_alone(run)
        if cell.measure.get("each"):
            found["each"] = of_each(run)
    if run.trained is not None and repeat.made is None:
        found |= along_mixtures(run.trained)
    if repeat.made is not None:
        found |= of_synthetic(cell, config, fed, repeat.made.x, repeat.made.y)
        found["frechet"] = repeat.made.figures["frechet"]
        found["features"] = repeat.made.figures["features"]
        found["own_classifier"] = repeat.made.figures["accuracy"]
        found["own_classifier_val"] = repeat.made.figures["val_accuracy"]
    if "tuned" in summary:
        found["tuned"] = summary["tuned"]["settings"]
    found["engine"] = repeat.engine
    return found


_OF_RUNS = ("Training", "Evaluation", "Machine")


def over_clients(by_metric: Mapping[str, list[float]], counted: str) -> Figures:
    """Each metric's mean and standard deviation over clients; of the counted one, its spread."""
    found: Figures = {}
    for name, values in by_metric.items():
        spread = metrics.fairness(values, lower_is_better=name in metrics.LOWER_IS_BETTER)
        found[name], found[f"{name}_std"] = spread["mean"], spread["std"]
        if name == counted:
            found |= {f"metric_{what}": spread[what] for what in metrics.FIGURES}
    return found


def _against_alone(run: glocal.Run) -> Figures:
    """Clients that are less accurate than alone, as the paper counts: by any difference."""
    found: Figures = {"worse": run.summary["below"], "alone": run.summary["local_mean"]}
    found |= {"shown_worse": run.summary["worse_off"], "clients_mean": run.summary["mean"]}
    found["worse_share"] = found["worse"] / len(run.clients)
    if "adapted" in run.summary:
        benefits = [row["adapted_benefit"] for row in run.clients]
        found["adapted_worse"] = sum(benefit < -1e-12 for benefit in benefits)
        found["adapted_worse_share"] = found["adapted_worse"] / len(run.clients)
        found["adapted_shown_worse"] = run.summary["adapted_worse_off"]
        found["adapted_mean"] = run.summary["adapted_mean"]
        found["adapted_by"] = run.summary["adapted"]["by"]
    return found


def of_each(run: glocal.Run) -> Figures:
    """Of every client, what figures are drawn of: before, alone, adapted, and by each technique."""
    columns = ("n_train", "accuracy", "local_accuracy", "adapted_accuracy", "adapted_by")
    found: Figures = {
        name: run.clients[name] for name in (*columns, "complexity") if name in run.clients[0]
    }
    if "adapted" in run.summary:
        by_technique = run.summary["adapted"]["techniques"]
        found["techniques"] = {name: it["accuracies"][0] for name, it in by_technique.items()}
    return {name: rounded(each) for name, each in found.items()}


def rounded(value: Any) -> Any:
    """The same with numbers of five digits, which is what a picture shows."""
    if isinstance(value, Mapping):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return round(value, 5) if isinstance(value, float) else value


def along_mixtures(trained: Trained) -> Figures:
    """Of clients with several candidates, test accuracy of each, and of what test data would pick.

    ``test_picked`` takes each client's best on its own test data, as released code does, and
    ``test_picked_one`` the one that is best on average: both look at what they are evaluated on.
    """
    t, everyone = trained.training, torch.arange(len(trained.training.fed))
    by_name: dict[str, list[torch.Tensor]] = {}
    for ids in torch.split(everyone.to(t.fed.x.device), AT_ONCE):
        candidates = trained.candidates()(ids)
        if len(candidates) == 1:
            return {}
        for name, model in candidates.items():
            right = scored(t.task, t.fed, t.engine, model, t.fed.test, ids, errors=False).value
            by_name.setdefault(name, []).append(right.double().cpu())
    accuracy = torch.stack([torch.cat(parts) for parts in by_name.values()])
    best, means = accuracy.amax(0), accuracy.mean(1)
    one = accuracy[int(means.argmax())]
    return {
        "test_picked": float(best.mean()),
        "test_picked_std": float(best.std(unbiased=False)),
        "test_picked_one": float(one.mean()),
        "test_picked_one_std": float(one.std(unbiased=False)),
        "along_least": float(means.min()),
        "along": {name: float(mean) for name, mean in zip(by_name, means, strict=True)},
    }


def of_synthetic(
    cell: Cell, config: Config, fed: Federation, x: torch.Tensor, y: torch.Tensor
) -> Figures:
    """Accuracy at the clients of a classifier that was trained on the synthetic data alone."""
    name = cell.measure.get("classifier", "cnn")
    shape = tuple(fed.x.shape[1:])
    module = models.build(name, input_shape=shape, classes=fed.classes, seed=config.seed)
    task = Task(module).to(fed.x.device)
    key = rng.fold(rng.key(config.seed, fed.x.device), 99)
    learned = synthetic_data.train_classifier(task, x, y, key)
    found: Figures = {"classifier": name}
    for part, called in (("test", "synthetic"), ("val", "synthetic_val")):
        each = [
            synthetic_data.accuracy(task, learned.w, *getattr(fed[k], part))
            for k in range(len(fed))
            if len(getattr(fed[k], part)[1])
        ]
        found[called] = sum(each) / len(each)
    if fed.central is not None:
        central = [part.to(fed.x.device) for part in fed.central]
        found["synthetic_official"] = synthetic_data.accuracy(task, learned.w, *central)
    return found


def joined(cell: Cell, config: Config, policy: CheckpointPolicy) -> Figures:
    """A device with rotated images joins when the training of the others is over."""
    return newcomer.figures(cell, config, federation_of(config), policy)


def hidden(cell: Cell, config: Config, policy: CheckpointPolicy) -> Figures:
    """An adversary against protected attributes, trained with the model at one λ."""
    fed = federation_of(config)
    against = fair.Against(pretrain=cell.measure.get("pretrain", 0))
    lam = cell.measure["lam"]
    (spec,) = fair.all_specs([cell.method], [lam], config, fed, against).values()
    runner, setup = runner_of(spec, spec), setups.make(config, fed, 0)
    with setup.threads():
        (repeat,) = runner.run_side_by_side([setup], NOBODY, policy)
        assert repeat.trained is not None
        found = fair.figures_of(repeat.trained)
    by_attribute = found["attributes"].values()
    found["adversary"] = fmean(each["adversary"] for each in by_attribute)
    found["fresh"] = fmean(max(each[probe] for probe in PROBES) for each in by_attribute)
    return {**found, "gradients": repeat.gradients, "parameters": setup.task.size}


def averaged_again(cell: Cell, config: Config, policy: CheckpointPolicy) -> Figures:
    """What clients adapted is averaged once more."""
    return beyond.again(cell, config, federation_of(config), policy)


def trained_without(cell: Cell, config: Config, policy: CheckpointPolicy) -> Figures:
    """Trained anew without those who do better alone."""
    fed = federation_of(config)
    run = run_of(cell, config, fed, policy)
    found = beyond.without(cell, run, fed, policy)
    return {"engine": run.repeats[0].engine, **found, "clients": len(fed)}


KINDS: dict[str, Callable[[Cell, Config, CheckpointPolicy], Figures]] = {
    "fit": fitted,
    "join": joined,
    "fair": hidden,
    "again": averaged_again,
    "without": trained_without,
}


def is_figure(value: Any) -> bool:
    """Whether it is a number that a mean can be taken of."""
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
