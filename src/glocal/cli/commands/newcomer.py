"""``glocal newcomer``: a client that was not there in training joins."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from glocal import report, studies
from glocal.cli.options import evaluation, method_names, option, with_settings
from glocal.cli.output import JSON, deliver
from glocal.core.progress import reporter
from glocal.experiment.config import Config

DEFAULT = ["fedavg", "fedprox", "lg-fedavg"]

joining = partial(option, panel="Joining")


def old_clients(beside: str) -> Any:
    """The option for how many clients there are, beside those who join later."""
    among = "How many old clients the data is partitioned among"
    return option(None, f"{among}, {beside}; 20 by default.", panel="Data")


def with_more(config: Config, old: int | None, more: int) -> Config:
    """The same settings, for data of the old clients and so many more."""
    from glocal.data.loading import DEFAULT_CLIENTS, brings_clients

    if old is None and not brings_clients(config.data, config.partition):
        old = DEFAULT_CLIENTS
    return replace(config, clients=None if old is None else old + more)


@with_settings(
    *("Data", "Training", "baseline", "seed", "engine", "device"),
    *("-clients", "-sampled", "-poisson", "-tune", "-patience"),
)
def newcomer(
    config: Config,
    methods: list[str] | None = method_names(" ".join(DEFAULT)),
    clients: int | None = old_clients("with one more that joins"),
    client_name: str | None = joining(
        None, "Who joins. Default: the last of the clients the data is partitioned among."
    ),
    rotate: float = joining(0.0, "Turn the newcomer's images by so many degrees."),
    own_epochs: int = joining(20, "Passes over its own data before it sends anything."),
    join_rounds: int = joining(10, "Rounds in which it takes part."),
    fraction_old: float = joining(0.0, "Share of old clients in those rounds; 0: none."),
    seeds: int = evaluation(1, "Repeat on so many splits and seeds of the same clients."),
    json: Path | None = JSON,
) -> None:
    """A client joins after training: what does it get, and what do the others lose?

    Examples:
      glocal newcomer --rotate 90 --partition iid --seeds 3

      glocal newcomer lg-fedavg --rotate 90 --fraction-old 0.1

      glocal newcomer fedavg ditto --data hospitals.csv --client hospital --client-name berlin
    """
    config = with_more(config, clients, 1)
    joining = {"own_epochs": own_epochs, "join_rounds": join_rounds, "fraction": fraction_old}
    with reporter(None) as progress:
        joined, result = studies.newcomer.join.join_each(
            methods or DEFAULT, config, client_name, rotate, seeds=seeds, report=progress, **joining
        )
    deliver(result, json, partial(report.newcomer.show, joined))
