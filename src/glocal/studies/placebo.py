"""A placebo: what is the verdict on something that cannot be better than itself?

A method is trained twice on the same clients and splits, with other seeds: other initialisations,
batches and cohorts. One training is set against the other as a method is set against being alone.
Nobody can be better or worse off, so whoever is called is called by chance, and of all clients that
should be no more than a tenth. How many it is on one's own federation says whether to believe the
verdicts there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from glocal.core import rng
from glocal.core.errors import GlocalError, shown
from glocal.core.files import plain
from glocal.core.progress import Report, silent
from glocal.core.validation import positive_integers
from glocal.data.federation import Federation
from glocal.evaluation.intervals import LEVEL
from glocal.evaluation.measures import default, measure
from glocal.evaluation.summary import client_table, verdict_counts
from glocal.evaluation.trials import Trial
from glocal.evaluation.verdict import ENOUGH
from glocal.experiment.config import Config
from glocal.experiment.fit import train_all
from glocal.experiment.repeat import Repeat
from glocal.experiment.runner import Callbacks
from glocal.studies.repeats import UNUSED, unique_specs

SIDES = 0x97AC
"""Seeds of a placebo are children of the caller's by this number, the pair's and the side's."""


def placebo(
    methods: Iterable[str], fed: Federation, config: Config, times: int = 1, report: Report = silent
) -> dict[str, Any]:
    """How many clients are called better or worse off than the same method, trained once more.

    Args:
        methods: what to set against itself; ``local`` is the local baseline.
        fed: the clients.
        config: the settings; their ``repeats`` are those of each side.
        times: how many pairs are trained, each with seeds of its own.
        report: told how far it is.
    """
    specs = unique_specs(methods)
    positive_integers(times=times)
    if config.repeats < ENOUGH:
        raise GlocalError(
            f"a verdict that covers training needs {ENOUGH} repeats or more, not {config.repeats}: "
            f"ask for repeats={ENOUGH}."
        )
    found: dict[str, list[str]] = {spec: [] for spec in specs}
    estimate, metric = "own", "accuracy"
    for pair in range(times):
        sides = [_trained(specs, fed, config, 2 * pair + side, report) for side in (0, 1)]
        for spec in specs:
            trials = trials_of(fed, *(side[spec] for side in sides))
            rows = client_table(trials, config.same)
            metric = trials[0].outcome.metric
            estimate = "pooled" if "own_verdict" in rows[0] else "own"
            found[spec] += rows["verdict"]
    by_method = {spec: _shares(verdicts) for spec, verdicts in found.items()}
    return {
        **_shares([verdict for verdicts in found.values() for verdict in verdicts]),
        "methods": by_method,
        "allowed": 1 - LEVEL,
        "clients": len(fed),
        "repeats": config.repeats,
        "times": times,
        "estimate": estimate,
        "metric": metric,
        "data": dict(fed.describe),
    }


def trials_of(fed: Federation, one: Sequence[Repeat], other: Sequence[Repeat]) -> list[Trial]:
    """One training set against the other, on each repeat's split."""
    return [
        Trial(fed.fold(r) if r else fed, a.outcome, b.outcome)
        for r, (a, b) in enumerate(zip(one, other, strict=True))
    ]


def _trained(
    specs: Sequence[str], fed: Federation, config: Config, side: int, report: Report
) -> dict[str, Sequence[Repeat]]:
    """All repeats of each method, with this side's seeds."""
    seed = rng.seed_of(rng.fold(rng.fold(rng.key(config.seed), SIDES), side))
    of_side = replace(config, seed=seed, baseline=UNUSED)
    runs = train_all(specs, of_side, fed, Callbacks(report))
    return {name: run.repeats for name, run in runs}


def _shares(verdicts: Sequence[str]) -> dict[str, Any]:
    """The shares of clients that are called better and worse off, and both together."""
    counts, n = verdict_counts(verdicts), len(verdicts)
    better, worse = counts["better_off"] / n, counts["worse_off"] / n
    return {"called": better + worse, "better": better, "worse": worse, "same": counts["same"] / n}


def read(path: Path) -> dict[str, Any]:
    """What ``glocal study placebo --json`` has written, to be shown beside a verdict."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise GlocalError(f"there is no file {shown(str(path))}: check its name.") from error
    except (OSError, ValueError) as error:
        raise GlocalError(f"{shown(str(path))} cannot be read as JSON ({error}).") from error
    wanted = {"called", "allowed", "methods", "repeats", "clients", "metric", "data"}
    if not isinstance(found, dict) or not wanted <= found.keys():
        raise GlocalError(
            f"{shown(str(path))} is no placebo's: make one with 'glocal study placebo --json'."
        )
    return found


def check_fits(found: Mapping[str, Any], fed: Federation, config: Config) -> None:
    """Raise where a placebo says nothing of these verdicts: other data, repeats or metric."""
    if found["data"] != plain(fed.describe):
        raise GlocalError(
            "the placebo is of other data: make one with the data options of this comparison."
        )
    metric = measure(config.metric or default(fed.target), fed.target).name
    for name, now in (("repeats", config.repeats), ("metric", metric)):
        if found[name] != now:
            raise GlocalError(
                f"the {name} of the placebo are not those of this comparison ({found[name]}, not "
                f"{now}): make one with --{name} {now}."
            )
