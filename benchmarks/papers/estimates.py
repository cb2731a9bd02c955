"""How long a cell would take on a GPU: from cells of the same model that were run, or from steps.

A round's clients train side by side, so its time is that of the steps one of them makes:
rounds × epochs × mini-batches, each of so many milliseconds. Those of the models below come from
``benchmarks/gpu.json`` (one H200, compiled; a round of 10 or 100 clients divided by its steps), or
are guesses where that has none. Evaluation and the start of a process are 20 s more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from glocal.core.spec import parse_call
from glocal.methods import presets
from papers.tables import Cell

MEASURED = {"mlp": 0.15, "lenet": 4.0, "cnn": 2.0}
"""Milliseconds of a step: 9 ms for 60 of 10 clients, 40 for 10 of 100, 289 / 4 for 40 of 25."""
GUESSED = {
    "logistic": 0.1,
    "resnet10": 15.0,
    "resnet18": 40.0,
    "word-lstm": 20.0,
    "char-lstm": 40.0,
}

EXAMPLES = {
    **{"mnist": 60_000, "cifar10": 50_000, "adult": 30_000, "dialysis": 6_805, "chem97": 31_022},
    **{"sotu": 60_000, "shakespeare": 400_000},
}
"""Of all clients, about."""
CLIENTS = {"dialysis": 67, "chem97": 131, "sotu": 43, "shakespeare": 426}
"""Those of data that brings its own."""

START = 20.0
TWICE = ("ditto", "apfl", "superfed-mm", "superfed-lm", "fedcgan", "fedrep")
"""Methods that make two models' steps."""


def steps(cell: Cell) -> float:
    """The mini-batches of all rounds, of clients that train side by side."""
    data = str(cell.settings.get("data", "digits")).partition("(")[0]
    clients = cell.settings.get("clients") or CLIENTS.get(data, 20)
    mine = 0.75 * EXAMPLES.get(data, 2000) / clients
    base, *_ = presets.parsed(cell.method)
    told: Mapping[str, Any] = base.kwargs
    rounds = told.get("rounds") or cell.settings.get("rounds", told.get("max_epochs", 50))
    if base.name == "local":
        rounds = told.get("max_epochs", 100)
    in_round = told.get("steps") or told.get("epochs", 1) * math.ceil(
        mine / told.get("batch_size", 20)
    )
    factor = {"pfedme": told.get("inner", 5)}.get(base.name, 2 if base.name in TWICE else 1)
    return float(rounds * in_round * factor)


def seconds(cell: Cell, per_step: Mapping[str, float]) -> float:
    """On a GPU; ``per_step`` has milliseconds by model that were seen in cells."""
    model = model_of(cell)
    each = {**GUESSED, **MEASURED, **per_step}.get(model, 10.0)
    return START + steps(cell) * each / 1000


def model_of(cell: Cell) -> str:
    """The name of its model."""
    return parse_call(str(cell.settings.get("model", "mlp")))[0]


def seen(done: Mapping[Cell, Mapping[str, Any]]) -> dict[str, float]:
    """Milliseconds a step by model, of cells that ran on a GPU."""
    by_model: dict[str, list[float]] = {}
    for cell, found in done.items():
        if "core" not in found["device"]:
            took = 1000 * max(0.0, found["seconds"] - START) / found["at_once"]
            by_model.setdefault(model_of(cell), []).append(took / max(1.0, steps(cell)))
    return {model: sum(each) / len(each) for model, each in by_model.items()}
