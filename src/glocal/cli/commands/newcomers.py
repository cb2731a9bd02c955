"""``glocal study newcomers``: clients arrive in waves while a federation trains."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from glocal import report, studies
from glocal.cli.options import method_names, option, with_settings
from glocal.cli.output import JSON, PICTURE, deliver
from glocal.core.progress import reporter
from glocal.experiment.config import Config

DEFAULT = ["fedavg", "lg-fedavg", "ditto"]

arriving = partial(option, panel="Arrivals")


@with_settings(
    "Data",
    "Training",
    "repeats",
    "baseline",
    "seed",
    "engine",
    "device",
    "-clients",
    "-tune",
    "-patience",
    rounds=20,
    repeats=3,
)
def newcomers(
    config: Config,
    methods: list[str] | None = method_names(" ".join(DEFAULT)),
    clients: int | None = option(
        None,
        "How many old clients the data is partitioned among, beside those who arrive; 20 by "
        "default.",
        panel="Data",
    ),
    wave: list[str] | None = arriving(
        None,
        "A wave, several times: how its clients' data differs, as in 'rotate(90)', invert, "
        "'contrast(0.3)', 'pixel-noise(0.3)', thicken, 'own-classes(8, 9)', or same. Default: "
        "rotate(90), invert and own-classes(8, 9).",
        show_default=False,
    ),
    size: int = arriving(2, "Clients in a wave."),
    every: int = arriving(10, "Rounds from wave to wave, and after the last."),
    until: float | None = arriving(
        None, "The first wave arrives when old clients' mean validation accuracy is so high."
    ),
    then: int = arriving(0, "So many rounds after that."),
    own_epochs: int = arriving(20, "Passes over its own data before a newcomer sends anything."),
    fraction_old: float = arriving(0.0, "Share of earlier clients in rounds with newcomers."),
    json: Path | None = JSON,
    picture: Path | None = PICTURE,
) -> None:
    """Clients arrive in waves during training: what do they get, and what do the others forget?

    Examples:
      glocal study newcomers --picture newcomers.png

      glocal study newcomers fedavg ditto --wave 'rotate(90)' --wave thicken --fraction-old 0.1

      glocal study newcomers lg-fedavg --until 0.9 --then 10 --availability 'dropout(0.2)'
    """
    from glocal.data.loading import DEFAULT_CLIENTS, brings_clients

    waves = studies.newcomer.waves
    arrivals = waves.Arrivals(
        waves=tuple(wave or waves.WAVES),
        size=size,
        every=every,
        until=until,
        then=then,
        own_epochs=own_epochs,
        fraction=fraction_old,
    )
    if clients is None and not brings_clients(config.data, config.partition):
        clients = DEFAULT_CLIENTS
    config = replace(config, clients=None if clients is None else clients + arrivals.clients)
    with reporter(None) as progress:
        result = waves.newcomers(methods or DEFAULT, config, arrivals, progress)
    show, draw = report.newcomers.show, report.newcomers.draw
    deliver(result, json, partial(show, result), picture, partial(draw, result))
