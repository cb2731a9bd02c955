"""The same clients on several splits and seeds, and what varies between them.

Repeat r is the one that ``fit(repeats=…)`` would run as its r-th: the r-th fold of the federation
(test sets do not overlap while there are folds) with a seed of its own. A study needs each
repeat by itself, to say how much of what it shows is chance. The ``settings`` of a study are those
of :func:`glocal.fit`, ``repeats`` and ``seed`` among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from glocal.core import rng
from glocal.core.errors import GlocalError
from glocal.core.progress import Report
from glocal.core.types import Params
from glocal.core.validation import positive_integers
from glocal.data.federation import Federation
from glocal.evaluation.intervals import student
from glocal.experiment.fit import fit
from glocal.experiment.repeat import Trained
from glocal.experiment.run import Run
from glocal.methods import resolve

UNUSED = "local(lr=0.1, max_epochs=1)"
"""A local baseline that costs nothing, for studies in which nobody is set against one."""

Train = Callable[..., Run]
"""A method, and settings that differ from the study's, to a run of one repeat."""


def repeats_of(
    fed: Federation, settings: Mapping[str, Any], report: Report, baseline: Any = UNUSED
) -> Iterator[tuple[Federation, Train]]:
    """Each repeat's federation, and how to train on it; the first is the caller's own."""
    repeats, seed = settings.get("repeats", 1), settings.get("seed", 0)
    positive_integers(repeats=repeats)
    given = {**settings, "repeats": 1, "progress": report, "baseline": baseline}
    for r in range(repeats):
        part = fed.fold(r) if r else fed
        yield part, partial(fit, fed=part, **{**given, "seed": seed_of(seed, r)})


def seed_of(seed: int, repeat: int) -> int:
    """The seed of a repeat."""
    return rng.seed_of(rng.fold(rng.key(seed), repeat)) if repeat else seed


def interval(values: Sequence[float]) -> dict[str, Any]:
    """Mean over repeats and a t interval at 90 %; one repeat says nothing about the spread."""
    mean, low, high = student(values)
    return {"mean": mean, "low": low, "high": high, "values": list(values)}


def unique_specs(specs: Iterable[str]) -> list[str]:
    """The specs, once each; raises, before anything is trained, if one names no method."""
    once = list(dict.fromkeys(specs))
    if not once:
        raise GlocalError("give at least one method.")
    for spec in once:
        resolve(spec)
    return once


def finished(run: Run) -> Trained:
    """The training of a run that had one."""
    if run.trained is None:
        raise GlocalError(
            f"{run.method} has no server and so no rounds to study: choose a federated method."
        )
    return run.trained


def all_ids(fed: Federation) -> Tensor:
    """The ids of all clients."""
    return torch.arange(len(fed), device=fed.x.device)


def client_models(run: Run) -> Params:
    """Every client's model, stacked: chosen on its validation data where there are several."""
    if run.trained is None and run.repeats:
        on_disk = run.repeats[0].on_disk
        stored = on_disk.saved()[1] if on_disk else run.states
        return {k: v for k, v in stored.items() if k != "ids"}
    return finished(run).models()


def about(fed: Federation, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a picture and a table must say about where their numbers come from."""
    return {
        "data": dict(fed.describe),
        "clients": len(fed),
        "repeats": settings.get("repeats", 1),
        "rounds": settings.get("rounds", 50),
        "model": str(settings.get("model", "mlp")),
    }
