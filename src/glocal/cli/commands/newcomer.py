"""``glocal newcomer``: a client that was not there in training joins."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated

from glocal import report, studies
from glocal.cli.options import with_settings
from glocal.cli.output import Json, deliver, method_names, option
from glocal.core.progress import reporter
from glocal.experiment.config import Config

DEFAULT = ["fedavg", "fedprox", "lg-fedavg"]


@with_settings(
    "Data", "Training", "baseline", "seed", "engine", "device", "-clients", "-sampled", "-poisson"
)
def newcomer(
    config: Config,
    methods: Annotated[list[str] | None, method_names(f"{' '.join(DEFAULT)}")] = None,
    clients: Annotated[
        int,
        option(
            "How many old clients the data is partitioned among, with one more that joins.", "Data"
        ),
    ] = 20,
    client_name: Annotated[
        str | None,
        option(
            "Who joins. Default: the last of the clients the data is partitioned among.", "Joining"
        ),
    ] = None,
    rotate: Annotated[
        float, option("Turn the newcomer's images by so many degrees.", "Joining")
    ] = 0.0,
    own_epochs: Annotated[
        int, option("Passes over its own data before it sends anything.", "Joining")
    ] = 20,
    join_rounds: Annotated[int, option("Rounds in which it takes part.", "Joining")] = 10,
    fraction_old: Annotated[
        float, option("Share of old clients in those rounds; 0: none.", "Joining")
    ] = 0.0,
    seeds: Annotated[
        int, option("Repeat on so many splits and seeds of the same clients.", "Evaluation")
    ] = 1,
    json: Json = None,
) -> None:
    """A client joins after training: what does it get, and what do the others lose?

    Examples:
      glocal newcomer --rotate 90 --partition iid --seeds 3

      glocal newcomer lg-fedavg --rotate 90 --fraction-old 0.1

      glocal newcomer fedavg ditto --data hospitals.csv --client hospital --client-name berlin
    """
    config = replace(config, clients=clients + 1)
    with reporter(None) as progress:
        joined, result = studies.newcomer.join.join_each(
            methods or DEFAULT,
            config,
            client=client_name,
            rotate=rotate,
            own_epochs=own_epochs,
            join_rounds=join_rounds,
            fraction=fraction_old,
            seeds=seeds,
            report=progress,
        )
    deliver(result, json, partial(report.newcomer.show, joined))
