"""How long a cell would take on a GPU: from its steps, corrected by cells that were run on one.

Clients of a round train side by side, so a round takes as many steps as one of them makes, and a
step of so many milliseconds, more with every client. Those of the first three models below come
from ``benchmarks/gpu.json`` (one H200, compiled), the others are guesses. Where cells of a model
were run on a GPU, all of its estimates are stretched to fit these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from glocal.core.spec import parse_call, split_plus
from glocal.methods import presets
from papers.tables import Cell, data_of

LEAST = 0.1
"""Milliseconds of the smallest step."""

PER_CLIENT = {
    **{"mlp": 0.0056, "lenet": 0.04, "cnn": 0.072},  # 40 ms / 60, 40 / 10, 289 / 40 of 100 clients
    **{"logistic": 0.002, "resnet10": 0.6, "resnet18": 1.0, "word-lstm": 2.0, "char-lstm": 4.0},
}
"""Milliseconds more of each client that trains beside others."""

OF_METHOD = {"fedevg": 0.3, "fedcgan": 1.0, "fedcvae": 0.8}
"""The same of methods with networks of their own: 2, 6 and 5 minutes for 6,000 steps of ten
clients, six runs at once (``docs/measurements/synthetic.md``)."""

EXAMPLES = {
    **{"mnist": 60_000, "cifar10": 50_000, "adult": 30_000, "dialysis": 6_805, "chem97": 31_022},
    **{"sotu": 60_000, "shakespeare": 400_000},
}
"""Of all clients, about."""
CLIENTS = {"dialysis": 67, "chem97": 131, "sotu": 43, "shakespeare": 426, "adult": 16}
"""Those of data that brings its own."""

START = 20.0
"""Seconds to load data, to compile and to evaluate."""

TWICE = ("ditto", "apfl", "superfed-mm", "superfed-lm", "fedrep")
"""Methods that make two models' steps."""


def milliseconds(cell: Cell) -> float:
    """Of all steps: those of rounds, of clients alone and of their adaptation."""
    base, *_ = presets.parsed(cell.method)
    told: Mapping[str, Any] = base.kwargs
    clients = _clients(cell)
    share = cell.settings.get("fraction", 1.0)
    together = cell.settings.get("sampled") or math.ceil(share * clients)
    rounds = told.get("rounds") or cell.settings.get("rounds", 50)
    if base.name == "local":
        rounds, together = told.get("max_epochs", 100), clients
    in_round = told.get("steps") or told.get("epochs", 1) * _batches(cell, told)
    factor = {"pfedme": told.get("inner", 5)}.get(base.name, 2 if base.name in TWICE else 1)
    each = OF_METHOD.get(base.name, PER_CLIENT.get(model_of(cell), 0.5))
    taken = rounds * in_round * factor * (LEAST + each * together)
    specs = [cell.settings.get("baseline"), *split_plus(cell.settings.get("adapt") or "none")]
    for spec in specs:
        if spec not in (None, "none"):
            call: Mapping[str, Any] = parse_call(str(spec))[2]
            epochs = call.get("max_epochs", 100)
            taken += epochs * _batches(cell, call) * (LEAST + each * clients)
    return float(taken)


def _clients(cell: Cell) -> int:
    return int(cell.settings.get("clients") or CLIENTS.get(data_of(cell), 20))


def _batches(cell: Cell, told: Mapping[str, Any]) -> int:
    """In an epoch of one client."""
    mine = 0.75 * EXAMPLES.get(data_of(cell), 2000) / _clients(cell)
    return math.ceil(mine / int(told.get("batch_size", 20)))


def seconds(cell: Cell, stretched: Mapping[str, float]) -> float:
    """On a GPU; ``stretched`` says by how much, by model, from cells that were run."""
    return START + milliseconds(cell) / 1000 * stretched.get(model_of(cell), 1.0)


def model_of(cell: Cell) -> str:
    """The name of its model."""
    return parse_call(str(cell.settings.get("model", "mlp")))[0]


def seen(done: Mapping[Cell, Mapping[str, Any]]) -> dict[str, float]:
    """How much longer cells of each model took on a GPU than was estimated."""
    took: dict[str, float] = {}
    told: dict[str, float] = {}
    for cell, found in done.items():
        if "core" not in found["device"]:
            model = model_of(cell)
            as_one = found.get("as_one", 1)
            measured = max(0.0, found["seconds"] - START / as_one) / found["at_once"]
            took[model] = took.get(model, 0.0) + measured
            told[model] = told.get(model, 0.0) + milliseconds(cell) / 1000
    return {model: took[model] / told[model] for model in took}
