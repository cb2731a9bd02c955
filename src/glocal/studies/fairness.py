"""How evenly methods serve clients, and what that costs the mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from glocal.core.errors import GlocalError, unknown
from glocal.core.files import plain
from glocal.core.progress import Report, silent
from glocal.data.federation import Federation
from glocal.evaluation.measures import OF_NUMBERS, default, fitting
from glocal.evaluation.metrics import METRICS
from glocal.evaluation.summary import fairness_against
from glocal.experiment import fit
from glocal.experiment.config import Config
from glocal.experiment.result_files import result
from glocal.experiment.run import Run
from glocal.experiment.runner import Callbacks
from glocal.studies.repeats import unique_specs


def fairness(
    methods: Sequence[str],
    config: Config,
    *,
    metric: str | None = None,
    against: str | None = None,
    report: Report = silent,
) -> tuple[dict[str, Run], dict[str, Any]]:
    """Train the methods, and set each one's figures against those of the method ``against``.

    Returns:
        The runs, and plain data: as of ``glocal compare``, with every figure and its difference.
    """
    specs = unique_specs(methods)
    base = against or specs[0]
    if base not in specs:
        raise GlocalError(f"--against {base} is not among the methods compared: add it to them.")
    fed = config.federation()
    metric = metric or default(fed.target)
    check_metric(metric, fed)
    if metric in fitting(fed):  # all but mce, of which there are no verdicts
        config = replace(config, metric=metric)
    runs = dict(fit.train_all(specs, config, fed, Callbacks(report)))
    figures = {
        name: fairness_against(run.summary, runs[base].summary, metric)
        for name, run in runs.items()
    }
    return runs, {
        **result(runs),
        "metric": metric,
        "against": base,
        "settings": plain(runs[specs[0]].settings),
        "fairness": plain(figures),
    }


def check_metric(metric: str, fed: Federation) -> None:
    """Raise, before anything is trained, if there is no such metric or it does not fit the data."""
    if metric not in (*METRICS, *OF_NUMBERS):
        raise unknown("metric", metric, [*METRICS, *OF_NUMBERS])
    names = fitting(fed)
    names += ["mce"] if fed.target.classes else []
    if metric not in names:
        what = f"data with {fed.classes} classes" if fed.target.classes else fed.target.task
        raise GlocalError(
            f"{metric} does not fit {what}: use {', '.join(names[:-1])} or {names[-1]}."
        )
