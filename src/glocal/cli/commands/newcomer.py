"""``glocal newcomer``: a client that was not there in training joins."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glocal.cli.options import (
    Augment,
    Client,
    Data,
    Device,
    EngineOption,
    FractionOf,
    Init,
    Json,
    Label,
    Model,
    Partition,
    Rounds,
    Seed,
    Transform,
    Yardstick,
    chosen,
)
from glocal.core.errors import GlocalError

if TYPE_CHECKING:
    from glocal.data.federation import Federation
    from glocal.experiment.config import Config
    from glocal.studies.newcomer.result import Joined

DEFAULT = ["fedavg", "fedprox", "lg-fedavg"]


def newcomer(
    methods: Annotated[
        list[str] | None,
        typer.Argument(metavar="[METHOD]...", help=f"Default: {' '.join(DEFAULT)}."),
    ] = None,
    data: Data = "digits",
    clients: Annotated[
        int,
        typer.Option(
            help="How many old clients the data is dealt among, with one more that joins.",
            rich_help_panel="Data",
        ),
    ] = 20,
    partition: Partition = None,
    transform: Transform = None,
    label: Label = "label",
    client: Client = "client",
    client_name: Annotated[
        str | None,
        typer.Option(
            help="Who joins. Default: the last of the clients the data is dealt among.",
            rich_help_panel="Joining",
        ),
    ] = None,
    rotate: Annotated[
        float,
        typer.Option(
            help="Turn the newcomer's images by so many degrees.", rich_help_panel="Joining"
        ),
    ] = 0.0,
    own_epochs: Annotated[
        int,
        typer.Option(
            help="Passes over its own data before it sends anything.", rich_help_panel="Joining"
        ),
    ] = 20,
    join_rounds: Annotated[
        int, typer.Option(help="Rounds in which it takes part.", rich_help_panel="Joining")
    ] = 10,
    fraction_old: Annotated[
        float,
        typer.Option(
            help="Share of old clients in those rounds; 0: none.", rich_help_panel="Joining"
        ),
    ] = 0.0,
    model: Model = "mlp",
    init: Init = None,
    augment: Augment = None,
    rounds: Rounds = 50,
    fraction: FractionOf = 1.0,
    baseline: Yardstick = "local",
    seeds: Annotated[
        int,
        typer.Option(
            help="Repeat on so many splits and seeds of the same clients.",
            rich_help_panel="Judging",
        ),
    ] = 1,
    seed: Seed = 0,
    engine: EngineOption = "auto",
    device: Device = "cpu",
    json: Json = None,
) -> None:
    """A client joins after training: what does it get, and what do the others lose?

    Examples:
      glocal newcomer --rotate 90 --partition iid --seeds 3

      glocal newcomer lg-fedavg --rotate 90 --fraction-old 0.1

      glocal newcomer fedavg ditto --data hospitals.csv --client hospital --client-name berlin
    """
    from glocal.core import files
    from glocal.core.progress import reporter
    from glocal.experiment.config import from_mapping
    from glocal.methods import resolve
    from glocal.studies.newcomer.join import join

    specs = list(dict.fromkeys(methods or DEFAULT))
    for spec in specs:
        resolve(spec)
    if json is not None and str(json) != "-" and json.is_dir():
        raise GlocalError(f"--json {json} is a folder: give the name of a file.")
    settings = from_mapping({**chosen(locals()), "clients": clients + 1})
    given = settings.arguments()
    names = ("model", "augment", "rounds", "seed", "engine", "device", "init", "baseline")
    arguments: dict[str, Any] = {name: given[name] for name in names}
    fed, who = federation(settings, client_name, rotate)
    done: dict[str, Joined] = {}
    with reporter(None) as report:
        for spec in specs:
            done[spec] = join(
                spec,
                fed,
                client=who,
                own_epochs=own_epochs,
                join_rounds=join_rounds,
                fraction=fraction_old,
                train_fraction=fraction,
                seeds=seeds,
                progress=report,
                **arguments,
            )
    everything = files.dump(result(done))
    if json is not None and str(json) == "-":
        sys.stdout.write(everything.decode())
        return
    if json is not None:
        files.write(json, everything)
    show(done)


def federation(settings: Config, client_name: str | None, rotate: float) -> tuple[Federation, str]:
    """The data with the newcomer among the clients, turned if asked for; and its name."""
    from dataclasses import replace

    from glocal.data.partition import column_of
    from glocal.studies.newcomer.arrival import place

    fed = settings.federation()
    dealt = fed.describe["partition"]
    if client_name is None:
        if dealt == "own ids" or column_of(dealt) is not None:
            raise GlocalError("the data has clients of its own: say who joins with --client-name.")
        client_name = fed.names[-1]
    k = place(fed, client_name)
    if rotate % 360:
        # By index: a name may be anything, and a spec may not hold it.
        turn = f"rotate({rotate:g}, clients=only({k}))"
        fed = replace(settings, transforms=(*settings.transforms, turn)).federation()
    return fed, client_name


def result(done: dict[str, Joined]) -> dict[str, Any]:
    """What ``--json`` writes."""
    from glocal.core.files import plain
    from glocal.experiment.result_files import SCHEMA

    return {
        "schema": SCHEMA,
        "data": plain(next(iter(done.values())).data),
        "methods": {
            name: {
                "summary": plain(j.summary),
                "settings": plain(j.settings),
                "newcomer": plain(list(j.rows)),
                "clients": plain(list(j.clients)),
            }
            for name, j in done.items()
        },
    }


def show(done: dict[str, Joined]) -> None:
    """One row a method: the newcomer's accuracy stage by stage, and what the old clients lose."""
    from glocal.report.tables import Cell, table

    colour = {"better off": "green", "worse off": "bold red", "undecided": "dim"}
    rows: list[list[Cell]] = []
    for name, j in done.items():
        s = j.summary
        seeds = s["old_low"] is not None
        low = s["old_low"] if seeds else s["old_paired"]["low"]
        high = s["old_high"] if seeds else s["old_paired"]["high"]
        rows.append(
            [
                (name, "bold"),
                *(f"{100 * s[k]:.1f}" for k in ("at_once", "alone", "own_training", "joined")),
                (s["verdict"], colour[s["verdict"]]),
                *(f"{100 * s[k]:.1f}" for k in ("old_before", "old_after")),
                f"{100 * s['old_change']:+.1f}",
                f"{100 * low:+.1f} … {100 * high:+.1f}",
                (str(s["old_worse_off"]), "bold red" if s["old_worse_off"] else ""),
            ]
        )
    head = ["method", "at once %", "alone %", "own training %", "joined %", "vs alone"]
    print()
    table([*head, "old before %", "old after %", "change", "90 % range", "worse off"], rows)
    print()
    for line in _legend(next(iter(done.values()))):
        print(line)


def _legend(joined: Joined) -> list[str]:
    from textwrap import wrap

    s, t = joined.summary, joined.settings
    with_old = f"with {t['fraction']:g} of the old clients" if t["fraction"] else "alone"
    where = "all old clients' test examples, by label shares" if s["estimate"] == "pooled" else ""
    spread = (
        f"90 % range: of the mean change over {s['seeds']} seeds (Student's t)"
        if s["old_low"] is not None
        else "90 % range: paired, on their test examples (more --seeds: over seeds)"
    )
    text = (
        f"{s['old_clients']} old clients train for {t['rounds']} rounds; client {joined.client} "
        f"then trains {t['own_epochs']} epochs by itself and {t['join_rounds']} rounds {with_old}. "
        f"The newcomer is judged on its own test split, against the model it could train alone; "
        f"old clients on {where or 'their own test splits'}. {spread}. Worse off: old clients for "
        "whom an exact paired test at 90 % says so."
    )
    return wrap(text, 100)
