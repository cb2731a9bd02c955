"""Calibration and accuracy under label noise: methods × noise settings.

As table 2.6 of the SuPerFed dissertation (Hahn, ch. II): training labels are flipped, class c to
c + 1 with rate .1 or .4 (*pair*), or to any other class with rate .2 or .6 in all (*symmetric*);
validation and test labels are not. For every client: accuracy, ECE and MCE (15 bins, once over all
the examples it is evaluated on), then means over clients, over splits and seeds.

Departures: the published table is on each client's own test split. Where clients differ in labels
alone, these figures are on all clients' test examples, weighted by the client's label shares: 15
bins of a few dozen examples measure little but their number. The figures on own splits are there as
``own_ece`` and ``own_mce``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from glocal.core.progress import Report, silent
from glocal.data.federation import Federation
from glocal.experiment.config import Config
from glocal.studies.repeats import (
    about,
    client_models,
    finished,
    interval,
    repeats_of,
    unique_specs,
)
from glocal.studies.scoring import logits_of, own, scores, tested

NOISES: dict[str, str | None] = {
    "none": None,
    "pair 0.1": "pair-noise(0.1)",
    "pair 0.4": "pair-noise(0.4)",
    "symmetric 0.2": "symmetric-noise(0.2)",
    "symmetric 0.6": "symmetric-noise(0.6)",
}
"""The published settings, as transforms of the data."""

SHOWN = ("accuracy", "ece", "mce", "own_ece", "own_mce")


def noise_study(
    methods: Sequence[str], config: Config, *, report: Report = silent
) -> dict[str, Any]:
    """The table of the published noises, each added to the data that the configuration names."""
    given = config.transforms
    federations = {
        name: replace(config, transforms=(*given, spec) if spec else given).federation()
        for name, spec in NOISES.items()
    }
    return noise_table(federations, methods, report=report, **config.arguments())


def noise_table(
    federations: Mapping[str, Federation],
    methods: Sequence[str],
    *,
    report: Report = silent,
    **settings: Any,
) -> dict[str, Any]:
    """Accuracy, ECE and MCE of each method (``local``: each client alone) under each noise.

    ``federations`` are the same clients by name of noise, with their training labels flipped.
    """
    methods = unique_specs(methods)
    values: dict[str, dict[str, dict[str, list[float]]]] = {
        m: {n: {s: [] for s in SHOWN} for n in federations} for m in methods
    }
    done, total = 0, len(federations) * settings.get("repeats", 1)
    for noise, fed in federations.items():
        for _, train in repeats_of(fed, settings, report):
            # Task and engine as a fit has them, for models that come without: one round will do.
            training = finished(train("fedavg", rounds=1)).training
            part = training.fed
            pooled, own_split = tested(part), own(part, part.test)
            for method in methods:
                models = client_models(train(method))
                on_pool, on_own = (
                    scores(logits_of(training, models, examples), part, examples)
                    for examples in (pooled, own_split)
                )
                shown = {**on_pool, "own_ece": on_own["ece"], "own_mce": on_own["mce"]}
                for name, kept in values[method][noise].items():
                    kept.append(fmean(shown[name]))
            done += 1
            report("noise settings", done, total)
    first = next(iter(federations.values()))
    return {
        "study": "noise",
        **about(first, settings),
        "noises": list(federations),
        "methods": {
            m: {n: {s: interval(v) for s, v in cell.items()} for n, cell in by_noise.items()}
            for m, by_noise in values.items()
        },
    }
