"""``glocal fairness``: how evenly methods serve clients, and what that costs the mean."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from glocal import report, studies
from glocal.cli.options import evaluation, method_names, with_settings
from glocal.cli.output import JSON, PICTURE, deliver
from glocal.core.progress import reporter
from glocal.experiment.config import Config

DEFAULT = ["fedavg", "q-fedavg", "term", "propfair", "afl", "fedmgda", "aaggff-s", "aaggff-d"]


@with_settings("Data", "Training", "repeats", "baseline", "Machine", repeats=5, jobs=0)
def fairness(
    config: Config,
    methods: list[str] | None = method_names(" ".join(DEFAULT)),
    metric: str | None = evaluation(
        None,
        "The metric: accuracy (the default), balanced_accuracy, f1, log_loss, brier, ece, mce, "
        "top5 (more than 5 classes), auc or average_precision (2 classes); of numbers mae (the "
        "default), rmse or r2.",
    ),
    against: str | None = evaluation(
        None, "The method others are set against. Default: the first."
    ),
    json: Path | None = JSON,
    picture: Path | None = PICTURE,
) -> None:
    """Which method serves clients most evenly, and what does the mean pay for it?

    Examples:
      glocal fairness --transform 'rotate(90, clients=4)'

      glocal fairness fedavg 'q-fedavg(q=1)' ditto --metric cross_entropy --picture lorenz.png
    """
    with reporter(None) as progress:
        runs, result = studies.fairness.fairness(
            methods or DEFAULT, config, metric=metric, against=against, report=progress
        )
    show, draw = partial(report.fairness.show, runs, result), partial(report.fairness.draw, result)
    deliver(result, json, show, picture, draw)
