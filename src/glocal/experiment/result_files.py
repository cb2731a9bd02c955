"""A run as files: its figures as JSON, its models and its clients' states as safetensors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glocal.core import checksums, tree
from glocal.core.errors import GlocalError
from glocal.core.files import dump, plain, write
from glocal.core.tensor_files import save_tensors
from glocal.experiment.learning_curves import lines_of

if TYPE_CHECKING:
    from glocal.experiment.run import Run

SCHEMA = 1

OF_MODELS = (
    *("final.safetensors", "clients.safetensors", "models.safetensors", "models.json"),
    "preprocessing.json",
)
"""The files that clients' models are made of, which have checksums."""

LONGEST = 100
"""Letters of a spec that a folder's name takes up: file systems allow some 250 in all."""


def save(run: Run, folder: Path) -> None:
    """The models with their checksums, ``metrics.jsonl`` and, last, ``result.json``."""
    from glocal.experiment import model_files, synthetic
    from glocal.training.client_state import export

    save_tensors(folder / "final.safetensors", run.model)
    on_disk = run.repeats[0].on_disk if run.repeats else None
    clients = folder / "clients.safetensors"
    if on_disk is not None:
        export.write(clients, on_disk)
    else:
        save_tensors(clients, dict(tree.flatten(run.states)))
    if run.made is not None:
        synthetic.save(run.made, int(run.data["classes"]), folder)
    model_files.save_models(run, folder)
    checksums.keep(folder, OF_MODELS)
    write(folder / "metrics.jsonl", lines(run))
    write(folder / "result.json", dump(result({run.method: run})))


def lines(run: Run) -> bytes:
    """A line of JSON for each round, one repeat after another."""
    return "".join(json.dumps(plain(line)) + "\n" for line in lines_of(run)).encode()


def result(runs: Mapping[str, Run]) -> dict[str, Any]:
    """What ``--json`` writes: the same for the same seed, so there are no times in it."""
    from glocal.experiment.participants import sentences

    return {"schema": SCHEMA, **figures(runs), "participants": sentences(runs)}


def figures(runs: Mapping[str, Run]) -> dict[str, Any]:
    """Where the data comes from, and the figures of every method."""
    return {
        "data": plain(next(iter(runs.values())).data),
        "methods": {
            name: {
                **({"baseline": True} if run.is_baseline else {}),
                "summary": plain(run.summary),
                "clients": plain(list(run.clients)),
            }
            for name, run in runs.items()
        },
    }


def read_result(file: Path) -> dict[str, Any]:
    """What a finished run's ``result.json`` holds; refuses what is none."""
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise GlocalError(
            f"{file} is damaged ({error}): train anew into another folder."
        ) from error
    if not isinstance(found, dict) or found.get("schema") != SCHEMA or "methods" not in found:
        raise GlocalError(f"{file} is no result of this version: train anew into another folder.")
    return found


def slug(spec: str) -> str:
    """A method's spec as the name of a folder."""
    return re.sub(r"[^A-Za-z0-9.=,+_-]+", "_", spec).strip("_.")[:LONGEST] or "method"
