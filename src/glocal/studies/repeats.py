"""The same clients on several splits and seeds, and what varies between them.

Repeat r is the one that ``fit(repeats=…)`` would run as its r-th: the r-th fold of the federation
(test sets do not overlap while there are folds) with a seed of its own. A study needs each
repeat by itself, to say how much of what it shows is chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from glocal.core import rng
from glocal.core.errors import GlocalError
from glocal.core.types import Params
from glocal.core.validation import positive_integers
from glocal.data.federation import Federation
from glocal.evaluation.intervals import student
from glocal.experiment.fit import fit
from glocal.experiment.repeat import Trained
from glocal.experiment.run import Run

UNUSED = "local(lr=0.1, max_epochs=1)"
"""A yardstick that costs nothing, for studies in which nobody is set against one."""

LEVEL = 0.90


def repeats_of(fed: Federation, repeats: int, seed: int) -> Iterator[tuple[Federation, int]]:
    """Each repeat's federation and seed; the first is the caller's own."""
    positive_integers(repeats=repeats)
    for r in range(repeats):
        yield fed.fold(r) if r else fed, seed_of(seed, r)


def seed_of(seed: int, repeat: int) -> int:
    """The seed of a repeat."""
    return rng.seed_of(rng.fold(rng.key(seed), repeat)) if repeat else seed


def interval(values: Sequence[float]) -> dict[str, Any]:
    """Mean over repeats and a t interval at 90 %; one repeat says nothing about the spread."""
    mean, low, high = student(values, LEVEL)
    return {"mean": mean, "low": low, "high": high, "values": list(values)}


def finished(run: Run) -> Trained:
    """The training of a run that had one."""
    if run.trained is None:
        raise GlocalError(
            f"{run.method} has no server and so no rounds to study: choose a federated method."
        )
    return run.trained


def client_models(run: Run) -> Params:
    """Every client's model, stacked: chosen on its validation data where there are several."""
    if run.is_baseline:
        on_disk = run.repeats[0].on_disk
        stored = on_disk.saved()[1] if on_disk else run.states
        return {k: v for k, v in stored.items() if k != "ids"}
    return finished(run).models()


def workbench(fed: Federation, **arguments: Any) -> Trained:
    """Task and engine as a fit would have them, for models that come without (one round)."""
    return finished(fit("fedavg", fed, **{**arguments, "rounds": 1}))


def about(fed: Federation, repeats: int, arguments: dict[str, Any]) -> dict[str, Any]:
    """What a picture and a table must say about where their numbers come from."""
    return {
        "data": dict(fed.describe),
        "clients": len(fed),
        "repeats": repeats,
        "rounds": arguments.get("rounds", 50),
        "model": str(arguments.get("model", "mlp")),
    }
