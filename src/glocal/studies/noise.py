"""Calibration and accuracy under label noise: methods × noise settings.

As table 2.6 of the SuPerFed dissertation (Hahn, ch. II): training labels are flipped, class c to
c + 1 with rate .1 or .4 (*pair*), or to any other class with rate .2 or .6 in all (*symmetric*);
validation and test labels are not. For every client: accuracy, ECE and MCE (15 bins, once over all
the examples it is judged on), then means over clients, over splits and seeds.

Departures: the published table is on each client's own test split. Where clients differ in labels
alone, these figures are on all clients' test examples, weighted by the client's label shares: 15
bins of a few dozen examples measure little but their number. The figures on own splits are there as
``own_ece`` and ``own_mce``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from glocal.core.errors import GlocalError
from glocal.core.progress import Report, silent
from glocal.data.federation import Federation
from glocal.experiment.fit import fit
from glocal.methods import resolve
from glocal.studies.repeats import UNUSED, about, client_models, interval, repeats_of, workbench
from glocal.studies.scoring import answers, mean, own, scores, tested

NOISES: dict[str, str | None] = {
    "none": None,
    "pair 0.1": "pair-noise(0.1)",
    "pair 0.4": "pair-noise(0.4)",
    "symmetric 0.2": "symmetric-noise(0.2)",
    "symmetric 0.6": "symmetric-noise(0.6)",
}
"""The published settings, as transforms of the data."""

SHOWN = ("accuracy", "ece", "mce", "own_ece", "own_mce")


def noise_table(
    federations: Mapping[str, Federation],
    methods: Sequence[str],
    *,
    repeats: int = 1,
    seed: int = 0,
    report: Report = silent,
    **arguments: Any,
) -> dict[str, Any]:
    """Accuracy, ECE and MCE of each method under each noise.

    Args:
        federations: The same clients by name of noise, with their training labels flipped.
        methods: Specs; ``local`` is each client alone.
        repeats: How many splits and seeds.
        seed: Of the first.
        report: Told of progress.
        arguments: For :func:`glocal.fit`.
    """
    if not methods:
        raise GlocalError("give at least one method.")
    for method in methods:
        resolve(method)
    found: dict[str, dict[str, dict[str, list[float]]]] = {
        m: {n: {s: [] for s in SHOWN} for n in federations} for m in methods
    }
    done, total = 0, len(federations) * repeats
    for noise, fed in federations.items():
        for part, own_seed in repeats_of(fed, repeats, seed):
            settings = {**arguments, "seed": own_seed, "progress": report, "baseline": UNUSED}
            training = workbench(part, **settings).training
            judged_on, own_test = tested(training.fed), own(training.fed, training.fed.test)
            for method in methods:
                models = client_models(fit(method, part, **settings))
                pooled, split = (
                    scores(answers(training, models, e), training.fed, e)
                    for e in (judged_on, own_test)
                )
                values = {**pooled, "own_ece": split["ece"], "own_mce": split["mce"]}
                for name, kept in found[method][noise].items():
                    kept.append(mean(values[name]))
            done += 1
            report("noise settings", done, total)
    first = next(iter(federations.values()))
    return {
        "study": "noise",
        **about(first, repeats, arguments),
        "noises": list(federations),
        "methods": {
            m: {n: {s: interval(v) for s, v in cell.items()} for n, cell in by_noise.items()}
            for m, by_noise in found.items()
        },
    }
