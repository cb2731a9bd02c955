"""``glocal study …``: train what a study needs, print its table, write its figures and picture."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glocal.cli.options import (
    Client,
    Clients,
    Data,
    Device,
    EngineOption,
    FractionOf,
    Json,
    Label,
    Model,
    Partition,
    Repeats,
    Rounds,
    Sampled,
    Seed,
    Transform,
    Yardstick,
    chosen,
    usable,
)
from glocal.core.errors import GlocalError

if TYPE_CHECKING:
    from glocal.core.progress import Report
    from glocal.experiment.config import Config
    from glocal.report.study_tables import TextTable

app = typer.Typer(
    no_args_is_help=True,
    help="What happens between all-local and all-global: curves, landscapes and tables.",
)

Picture = Annotated[
    Path | None,
    typer.Option(
        "--picture",
        help="Draw it to this .png file (needs glocal\\[plot]).",
        rich_help_panel="Output",
        callback=usable,
    ),
]
Methods = Annotated[list[str] | None, typer.Argument(metavar="[METHOD]...", show_default=False)]


@app.command()
def split(
    methods: Methods = None,
    side: Annotated[
        str, typer.Option(help="Where the local part begins to grow: input or output.")
    ] = "input",
    data: Data = "digits",
    clients: Clients = 20,
    partition: Partition = None,
    transform: Transform = None,
    label: Label = "label",
    client: Client = "client",
    model: Model = "mlp",
    rounds: Rounds = 20,
    fraction: FractionOf = 1.0,
    repeats: Repeats = 3,
    baseline: Yardstick = "local",
    seed: Seed = 0,
    engine: EngineOption = "auto",
    device: Device = "cpu",
    json: Json = None,
    picture: Picture = None,
) -> None:
    """How much of the model should be local? From all-global to all-local, a layer at a time.

    METHODs are bases whose shared layers the study sets; lg-fedavg with and without its warm-up
    unless given.

    Examples:
      glocal study split

      glocal study split fedavg --side output --model 'mlp(64,64,64)' --picture split.png
    """
    from glocal.report import figures as plot
    from glocal.report import study_tables as tables
    from glocal.studies.split_sweep import split_sweep, with_shared

    specs = methods or ["lg-fedavg", "lg-fedavg(warmup=0)"]
    for spec in specs:
        with_shared(spec, "everything")
    settings = _begin(locals(), specs)
    fed, arguments = settings.federation(), settings.arguments()
    with _reporter() as report:
        found = [split_sweep(fed, m, side=side, report=report, **arguments) for m in specs]
    _end({"splits": found}, tables.split_sweep(found), json)
    _draw(partial(plot.split_sweep, found), picture, json)


@app.command()
def interpolate(
    local: Annotated[
        str,
        typer.Option(
            help="How clients train alone: local, or 'fedavg(shared=nothing)' to begin where the "
            "global model begins."
        ),
    ] = "local",
    together: Annotated[str, typer.Option(help="What trains the global model.")] = "fedavg",
    alpha: Annotated[
        list[float] | None,
        typer.Option(
            help="Where to look, several times; 0, 0.1, …, 1 unless given.", show_default=False
        ),
    ] = None,
    data: Data = "digits",
    clients: Clients = 20,
    partition: Partition = None,
    transform: Transform = None,
    label: Label = "label",
    client: Client = "client",
    model: Model = "mlp",
    rounds: Rounds = 20,
    fraction: FractionOf = 1.0,
    repeats: Repeats = 3,
    seed: Seed = 0,
    engine: EngineOption = "auto",
    device: Device = "cpu",
    json: Json = None,
    picture: Picture = None,
) -> None:
    """Between each client's own model and the global one: mix weights, or mix predictions.

    Example:
      glocal study interpolate --local 'fedavg(shared=nothing)' --picture between.png
    """
    from glocal.report import figures as plot
    from glocal.report import study_tables as tables
    from glocal.studies.curve import GRID
    from glocal.studies.interpolation import interpolate as study

    settings = _begin(locals(), [local, together])
    fed, arguments = settings.federation(), settings.arguments()
    del arguments["baseline"]
    with _reporter() as report:
        found = study(
            fed, local=local, together=together, grid=alpha or GRID, report=report, **arguments
        )
    _end(found, tables.interpolation(found), json)
    _draw(partial(plot.interpolation, found), picture, json)


@app.command()
def mixture(
    methods: Methods = None,
    lam: Annotated[
        list[float] | None,
        typer.Option(
            help="Where to look, several times; 0, 0.1, …, 1 unless given.", show_default=False
        ),
    ] = None,
    data: Data = "digits",
    clients: Clients = 20,
    partition: Partition = None,
    transform: Transform = None,
    label: Label = "label",
    client: Client = "client",
    model: Model = "mlp",
    rounds: Rounds = 20,
    fraction: FractionOf = 1.0,
    repeats: Repeats = 3,
    seed: Seed = 0,
    engine: EngineOption = "auto",
    device: Device = "cpu",
    json: Json = None,
    picture: Picture = None,
) -> None:
    """SuPerFed and APFL: accuracy, loss and calibration along the mixture of two models.

    METHODs are apfl, superfed-mm and superfed-lm, all three unless given.

    Example:
      glocal study mixture superfed-mm 'superfed-mm(nu=0)' --picture lambda.png
    """
    from glocal.report import figures as plot
    from glocal.report import study_tables as tables
    from glocal.studies.curve import GRID, check_grid
    from glocal.studies.mixture_curve import mixture_curve, own_name

    specs = methods or ["apfl", "superfed-mm", "superfed-lm"]
    settings = _begin(locals(), specs)
    for spec in specs:
        own_name(spec)
    grid = check_grid(lam or GRID, "lam")
    fed, arguments = settings.federation(), settings.arguments()
    with _reporter() as report:
        found = [mixture_curve(fed, m, grid=grid, report=report, **arguments) for m in specs]
    _end({"mixtures": found}, tables.mixture_curve(found), json)
    _draw(partial(plot.mixture_curve, found), picture, json)


@app.command()
def landscape(
    methods: Methods = None,
    points: Annotated[
        str,
        typer.Option(help="clients: the server's model and two clients'; seeds: three trainings."),
    ] = "clients",
    size: Annotated[int, typer.Option(help="Points on a side of the grid.")] = 31,
    data: Data = "digits",
    clients: Clients = 20,
    partition: Partition = None,
    transform: Transform = None,
    label: Label = "label",
    client: Client = "client",
    model: Model = "mlp",
    rounds: Rounds = 20,
    fraction: FractionOf = 1.0,
    seed: Seed = 0,
    engine: EngineOption = "auto",
    device: Device = "cpu",
    json: Json = None,
    picture: Picture = None,
) -> None:
    """The loss in the plane through three models, and the barriers between them.

    METHODs are fedavg, superfed-mm and superfed-lm unless given.

    Example:
      glocal study landscape fedavg ditto --points clients --picture landscape.png
    """
    from glocal.report import figures as plot
    from glocal.report import study_tables as tables
    from glocal.studies.landscape import landscape as study

    specs = methods or ["fedavg", "superfed-mm", "superfed-lm"]
    settings = _begin(locals(), specs)
    fed, arguments = settings.federation(), settings.arguments()
    del arguments["repeats"]
    with _reporter() as report:
        found = [study(fed, m, points=points, size=size, report=report, **arguments) for m in specs]
    _end({"landscapes": found}, tables.landscape(found), json)
    _draw(partial(plot.landscape, found), picture, json)


@app.command()
def noise(
    methods: Methods = None,
    data: Data = "digits",
    clients: Clients = 20,
    partition: Partition = "dirichlet(10)",
    transform: Transform = None,
    label: Label = "label",
    client: Client = "client",
    model: Model = "mlp",
    rounds: Rounds = 20,
    fraction: FractionOf = 1.0,
    repeats: Repeats = 3,
    seed: Seed = 0,
    engine: EngineOption = "auto",
    device: Device = "cpu",
    json: Json = None,
    picture: Picture = None,
) -> None:
    """Accuracy and calibration when training labels are wrong: pair and symmetric noise.

    METHODs are local(lr=0.1), fedavg and superfed-mm unless given.

    Example:
      glocal study noise fedavg apfl --repeats 5 --picture noise.png
    """
    from dataclasses import replace

    from glocal.report import figures as plot
    from glocal.report import study_tables as tables
    from glocal.studies.noise import NOISES, noise_table

    specs = list(dict.fromkeys(methods or ["local(lr=0.1)", "fedavg", "superfed-mm"]))
    settings = _begin(locals(), specs)
    given = settings.transforms
    feds = {
        name: replace(settings, transforms=(*given, spec) if spec else given).federation()
        for name, spec in NOISES.items()
    }
    with _reporter() as report:
        found = noise_table(feds, specs, report=report, **settings.arguments())
    _end(found, tables.noise(found), json)
    _draw(partial(plot.noise, found), picture, json)


@app.command()
def decisions(
    methods: Methods = None,
    response: Annotated[
        str,
        typer.Option(
            help="The transform by which methods without their own are judged: exponential, "
            "frechet, gumbel, logistic, normal or weibull.",
            rich_help_panel="Judging",
        ),
    ] = "normal",
    data: Data = "digits",
    clients: Clients = 20,
    partition: Partition = None,
    transform: Transform = None,
    label: Label = "label",
    client: Client = "client",
    model: Model = "mlp",
    rounds: Rounds = 50,
    fraction: FractionOf = 1.0,
    sampled: Sampled = None,
    repeats: Repeats = 3,
    seed: Seed = 0,
    engine: EngineOption = "auto",
    device: Device = "cpu",
    json: Json = None,
    picture: Picture = None,
) -> None:
    """What do fair decisions cost? Objective and regret of the weights, added up over rounds.

    METHODs are AAggFF under its six response transforms unless given: aaggff-s, or aaggff-d where
    clients are sampled.

    Examples:
      glocal study decisions --transform 'rotate(90, clients=3)' --partition iid

      glocal study decisions fedavg term aaggff-d --fraction 0.25 --picture decisions.png
    """
    from glocal.report import figures as plot
    from glocal.report import study_tables as tables
    from glocal.studies.decisions import by_transform

    found = _decided(locals(), methods, by_transform)
    _end({"decisions": found}, tables.decisions(found), json)
    _draw(partial(plot.decisions, found), picture, json)


@app.command()
def weights(
    methods: Methods = None,
    data: Data = "digits",
    clients: Clients = 20,
    partition: Partition = None,
    transform: Transform = None,
    label: Label = "label",
    client: Client = "client",
    model: Model = "mlp",
    rounds: Rounds = 50,
    fraction: FractionOf = 1.0,
    sampled: Sampled = None,
    seed: Seed = 0,
    engine: EngineOption = "auto",
    device: Device = "cpu",
    json: Json = None,
    picture: Picture = None,
) -> None:
    """Who counts how much, over time? Every client's weight in every round, and its loss.

    METHODs are fedavg, term, afl, aaggff-s and aaggff-d unless given, without those that need every
    client in every round where clients are sampled.

    Example:
      glocal study weights --transform 'rotate(90, clients=3)' --partition iid --picture weights.png
    """
    from glocal.report import figures as plot
    from glocal.report import study_tables as tables
    from glocal.studies.decisions import weighted

    found = _decided(locals(), methods, weighted)
    _end({"weights": found}, tables.weights(found), json)
    _draw(partial(plot.weights, found), picture, json)


def _decided(
    given: dict[str, Any], methods: list[str] | None, default: Callable[[bool], list[str]]
) -> list[dict[str, Any]]:
    """Each method's decisions; all methods are checked before one trains."""
    from glocal.studies.decisions import check, decisions, everybody

    settings = _begin(given, methods or [])
    fed, arguments = settings.federation(), settings.arguments()
    arguments["response"] = given.get("response", "normal")
    there = everybody(len(fed), settings.fraction, settings.sampled)
    specs = list(dict.fromkeys(methods or default(there)))
    for spec in specs:
        check(fed, spec, **arguments)
    with _reporter() as report:
        return [decisions(fed, m, report=report, **arguments) for m in specs]


def _begin(given: dict[str, Any], specs: list[str]) -> Config:
    """Refuse, before anything is trained, what can be refused then."""
    from glocal.experiment.config import from_mapping
    from glocal.methods import resolve
    from glocal.report import figures as plot

    plot.ready(given["picture"])
    json = given["json"]
    if json is not None and str(json) != "-" and json.is_dir():
        raise GlocalError(f"--json {json} is a folder: give the name of a file.")
    for spec in specs:
        resolve(spec)
    return from_mapping(chosen(given))


def _reporter() -> AbstractContextManager[Report]:
    from glocal.core.progress import reporter

    return reporter(None)


def _end(found: Any, text: TextTable, json: Path | None) -> None:
    """The table, or nothing but JSON where that was asked for."""
    from glocal.core import files
    from glocal.report import tables as show

    figures = files.dump(files.plain(found))
    if str(json) == "-":
        sys.stdout.write(figures.decode())
        return
    head = text.head
    if sys.stdout.isatty():
        # Two lines, so that 100 columns have room for intervals.
        head = [name.replace(" ", "\n", 1) for name in head]
    print()
    show.table(head, text.rows, left=text.left)
    print()
    for line in text.legend:
        print(line)
    if json is not None:
        files.write(json, figures)


def _draw(draw: Callable[[Path], None], picture: Path | None, json: Path | None) -> None:
    """The picture, after everything else is safe."""
    if picture is None:
        return
    draw(picture)
    if str(json) != "-":
        print(f"Picture: {picture}")
