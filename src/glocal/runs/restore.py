"""A finished run, read back from its folder: the training as it stood after its last round.

The data is loaded and partitioned again by the run's settings (with the same fingerprint), and
the server's model and the clients' states come from the files, so that every client predicts with
exactly what the run left it. With repeats, the files have the models of the first.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glocal.core import checksums, tree
from glocal.core.errors import GlocalError
from glocal.core.tensor_files import load_tensors
from glocal.core.types import Tree
from glocal.data.federation import Federation
from glocal.experiment import setup as setups
from glocal.experiment.config import Config
from glocal.experiment.model_files import ABOUT
from glocal.experiment.repeat import Trained, progress_of
from glocal.experiment.result_files import SCHEMA
from glocal.experiment.runner import Federated, Runner, runner_of
from glocal.experiment.setup import Setup
from glocal.runs.folder import COMPARISON, unfinished
from glocal.runs.settings import read as read_settings
from glocal.training.loop import Training
from glocal.training.run_state import Progress

FILES = ("result.json", "metrics.jsonl", "final.safetensors", "clients.safetensors")


@dataclass(frozen=True)
class Files:
    """What a folder says of its run, but for the models."""

    folder: Path
    method: str
    runner: Runner
    settings: Config
    fingerprint: str
    """Of the federation the run had."""
    engine: str
    stages: list[str | None]
    """Of each round of the first repeat, where the plan has several.

    An attack or a spent budget may have ended it early.
    """
    stopped: int | None
    """The round that could not be trained under an attack."""
    summary: dict[str, Any]
    clients: list[dict[str, Any]]


@dataclass(frozen=True)
class Restored:
    """A run as it ended, and the setup in which it can be evaluated further."""

    files: Files
    fed: Federation
    setup: Setup
    trained: Trained


def restore(path: Path, device: str | None = None) -> list[Restored]:
    """The run in a folder, or all runs but those of ``local`` in a folder of a comparison."""
    found = [read(folder) for folder in folders(path)]
    if len(found) > 1:  # as they were compared
        order = list(_json(path / "result.json").get("methods", {}))
        found.sort(key=lambda f: order.index(f.method) if f.method in order else len(order))
    runs = [files for files in found if isinstance(files.runner, Federated)]
    if not runs:
        raise GlocalError(
            f"the run in {path} is of local: clients who are alone have no model that others made, "
            "so there is nothing to adapt; give the folder of a federated method."
        )
    first = runs[0]
    for files in runs:
        if (files.settings, files.fingerprint) != (first.settings, first.fingerprint):
            raise GlocalError(
                f"the runs in {path} have different settings: give their folders one at a time."
            )
    fed = first.settings.federation()
    if fed.fingerprint != first.fingerprint:
        raise GlocalError(
            f"the data of {first.folder} has changed since (its fingerprint was "
            f"{first.fingerprint[:16]} and is {fed.fingerprint[:16]} now): give it the old data "
            f"back, or {_again(first.folder)}."
        )
    return [_restored(files, fed, device) for files in runs]


def folders(path: Path) -> list[Path]:
    """The folder itself if it is a run's, else the runs inside."""
    if not path.is_dir():
        raise GlocalError(f"there is no folder {path}: check its name.")
    if (path / "settings.toml").is_file():
        return [path]
    inside = sorted(p.parent for p in path.glob("*/settings.toml"))
    if not inside:
        raise GlocalError(
            f"there is no run in {path}: give a folder that 'glocal run' or 'glocal compare' has "
            "made."
        )
    if not (path / "result.json").is_file():
        resumes = (path / COMPARISON).is_file()
        raise GlocalError(
            f"{path} is no finished comparison, as it has no result.json: "
            + (f"go on with 'glocal resume {path}', or " if resumes else "")
            + f"give the folder of one of its runs, such as {inside[0]}."
        )
    return inside


def read(folder: Path) -> Files:
    """Check that a run finished and that its files can be read, before anything is loaded."""
    method, settings = read_settings(folder / "settings.toml")
    for name in FILES:
        if not (folder / name).is_file():
            whole = folder.parent if (folder.parent / COMPARISON).is_file() else folder
            remedy = f"go on with 'glocal resume {whole}'" if unfinished(whole) else _again(folder)
            raise GlocalError(f"the run in {folder} did not finish, as it has no {name}: {remedy}.")
    facts = tomllib.loads((folder / "settings.toml").read_text(encoding="utf-8"))
    result = _json(folder / "result.json")
    if result.get("schema") != SCHEMA:
        raise GlocalError(
            f"the run in {folder} was written with schema {result.get('schema')}, and this version "
            f"reads schema {SCHEMA}: {_again(folder)}."
        )
    runner = runner_of(method, method)
    try:
        own = result["methods"][method]
        text = (folder / "metrics.jsonl").read_text(encoding="utf-8")
        lines = [line for line in map(json.loads, text.splitlines()) if line.get("repeat", 1) == 1]
        stopped = own["summary"].get("attack", {"stopped": [None]})["stopped"][0]
        if not lines and stopped is None and isinstance(runner, Federated):
            raise ValueError("metrics.jsonl has no rounds")
        if [line["round"] for line in lines] != list(range(1, len(lines) + 1)):
            raise ValueError("metrics.jsonl lacks rounds")
        summary = own["summary"]
        if "early_stopping" in summary:  # what came after the round that was kept is in no file
            lines = lines[: int(summary["early_stopping"][0]["round"])]
        values = summary["accuracies"] if "accuracies" in summary else summary["values"]["mae"]
        if len(values[0]) != len(own["clients"]):
            raise ValueError("accuracies and clients differ in number")
        return Files(
            folder,
            method,
            runner,
            settings,
            facts["federation"]["fingerprint"],
            facts["chosen"]["engine"],
            [line.get("stage") for line in lines],
            stopped,
            own["summary"],
            own["clients"],
        )
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise GlocalError(
            f"the files in {folder} do not fit together ({type(error).__name__}: {error}): "
            f"{_again(folder)}."
        ) from error


def _restored(files: Files, fed: Federation, device: str | None) -> Restored:
    # By rule or not, the engine is the one that it was: another rounds differently.
    config = replace(
        files.settings,
        repeats=1,
        adapt=None,
        new_test=False,
        engine=files.engine,
        device=device or files.settings.device,
    )
    setup = setups.make(config, fed, 0)
    training = files.runner.check(setup)
    assert training is not None
    picks = None
    if "round" in files.summary.get("chosen", [{}])[0]:  # before validation data was trained on
        picks = tuple(str(row["model"]) for row in files.clients)
    return Restored(files, fed, setup, Trained(training, _progress(files, training), picks))


def _progress(files: Files, training: Training) -> Progress:
    """Where the run stood: the server's model, the clients' states, the round and the stage."""
    task = training.task
    if any((files.folder / name).is_file() for name in (ABOUT, checksums.FILE)):  # not of old ones
        checksums.check(files.folder, _again(files.folder))
    file = files.folder / "final.safetensors"
    params = _tensors(file)
    if tree.structure(params) != tree.structure(task.params):
        raise _misfit(file)
    names = [stage.name for stage in training.plan.stages]
    if len(names) > 1 and files.stages and files.stages[-1] not in names:
        raise _misfit(files.folder / "metrics.jsonl")
    nobody = torch.zeros(0, dtype=torch.int64)
    begun = progress_of(training, params, nobody, {}, files.stages)
    like = training.make(begun, training.halves[begun.stage])(0)
    ids, states = _states(files.folder / "clients.safetensors", len(training.fed), like)
    return progress_of(training, params, ids, states, files.stages)


def _states(file: Path, clients: int, like: Tree) -> tuple[Tensor, Tree]:
    """Who has a state, and these, each of the structure of ``like``."""
    flat = _tensors(file)
    ids = flat.pop("ids", None)
    if ids is None or ids.dim() != 1 or ids.dtype != torch.int64:
        raise _misfit(file)
    states = tree.unflatten(flat, like)
    wanted = tree.structure(tree.map(lambda x: x.expand(len(ids), *x.shape), like))
    known = len(set(ids.tolist()) & set(range(clients))) == len(ids)
    if not known or (len(ids) and tree.structure(states) != wanted):
        raise _misfit(file)
    return ids, states


def _tensors(file: Path) -> dict[str, Tensor]:
    return load_tensors(file, f"{file} is damaged", _again(file.parent))


def _json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:  # UnicodeDecodeError is one too
        raise GlocalError(f"{file} is damaged ({error}): {_again(file.parent)}.") from error
    return found if isinstance(found, dict) else {}


def _misfit(file: Path) -> GlocalError:
    return GlocalError(
        f"{file} does not fit the model and the method of its run: it is damaged, or one of them "
        f"has changed since; {_again(file.parent)}."
    )


def _again(folder: Path) -> str:
    return f"train it again with 'glocal run {folder / 'settings.toml'}'"
