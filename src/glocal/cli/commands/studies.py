"""``glocal study …``: train what a study needs, print its table, write its figures and picture."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from glocal import report, studies
from glocal.cli.options import with_settings
from glocal.cli.output import Json, Picture, deliver, method_names, option
from glocal.core.progress import reporter
from glocal.experiment.config import Config

app = typer.Typer(
    no_args_is_help=True,
    help="What happens between all-local and all-global: curves, landscapes and tables.",
)

SETTINGS = ("Data", "Training", "seed", "engine", "device", "precision")
"""The settings that all studies take."""

Methods = Annotated[list[str] | None, method_names()]
Grid = Annotated[
    list[float] | None,
    option("Where to look, several times; 0, 0.1, …, 1 unless given.", show_default=False),
]


@app.command()
@with_settings(*SETTINGS, "repeats", "baseline", rounds=20, repeats=3)
def split(
    config: Config,
    methods: Methods = None,
    side: Annotated[str, option("Where the local part begins to grow: input or output.")] = "input",
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
    specs = studies.repeats.unique_specs(methods or ["lg-fedavg", "lg-fedavg(warmup=0)"])
    for spec in specs:
        studies.split_sweep.with_shared(spec, "everything")
    results = _each(studies.split_sweep.split_sweep, specs, config, side=side)
    show, draw = report.studies.show_split, report.studies.draw_split
    _deliver({"splits": results}, results, show, draw, json, picture)


@app.command()
@with_settings(*SETTINGS, "repeats", rounds=20, repeats=3)
def interpolate(
    config: Config,
    local: Annotated[
        str,
        option(
            "How clients train alone: local, or 'fedavg(shared=nothing)' to begin where the "
            "global model begins."
        ),
    ] = "local",
    together: Annotated[str, option("What trains the global model.")] = "fedavg",
    alpha: Grid = None,
    json: Json = None,
    picture: Picture = None,
) -> None:
    """Between each client's own model and the global one: mix weights, or mix predictions.

    Example:
      glocal study interpolate --local 'fedavg(shared=nothing)' --picture between.png
    """
    studies.repeats.unique_specs([local, together])
    grid = studies.curve.check_grid(alpha or studies.curve.GRID, "alpha")
    study = partial(studies.interpolation.interpolate, local=local, together=together, grid=grid)
    with reporter(None) as progress:
        result = study(config.federation(), report=progress, **config.arguments())
    show, draw = report.studies.show_interpolation, report.studies.draw_interpolation
    _deliver(result, result, show, draw, json, picture)


@app.command()
@with_settings(*SETTINGS, "repeats", rounds=20, repeats=3)
def mixture(
    config: Config,
    methods: Methods = None,
    lam: Grid = None,
    json: Json = None,
    picture: Picture = None,
) -> None:
    """SuPerFed and APFL: accuracy, loss and calibration along the mixture of two models.

    METHODs are apfl, superfed-mm and superfed-lm, all three unless given.

    Example:
      glocal study mixture superfed-mm 'superfed-mm(nu=0)' --picture lambda.png
    """
    specs = studies.repeats.unique_specs(methods or ["apfl", "superfed-mm", "superfed-lm"])
    for spec in specs:
        studies.mixture_curve.own_name(spec)
    grid = studies.curve.check_grid(lam or studies.curve.GRID, "lam")
    results = _each(studies.mixture_curve.mixture_curve, specs, config, grid=grid)
    show, draw = report.studies.show_mixture, report.studies.draw_mixture
    _deliver({"mixtures": results}, results, show, draw, json, picture)


@app.command()
@with_settings(*SETTINGS, rounds=20)
def landscape(
    config: Config,
    methods: Methods = None,
    points: Annotated[
        str, option("clients: the server's model and two clients'; seeds: three trainings.")
    ] = "clients",
    size: Annotated[int, option("Points on a side of the grid.")] = 31,
    json: Json = None,
    picture: Picture = None,
) -> None:
    """The loss in the plane through three models, and the barriers between them.

    METHODs are fedavg, superfed-mm and superfed-lm unless given.

    Example:
      glocal study landscape fedavg ditto --points clients --picture landscape.png
    """
    specs = studies.repeats.unique_specs(methods or ["fedavg", "superfed-mm", "superfed-lm"])
    results = _each(studies.landscape.landscape, specs, config, points=points, size=size)
    show, draw = report.studies.show_landscape, report.studies.draw_landscape
    _deliver({"landscapes": results}, results, show, draw, json, picture)


@app.command()
@with_settings(*SETTINGS, "repeats", partition="dirichlet(10)", rounds=20, repeats=3)
def noise(
    config: Config, methods: Methods = None, json: Json = None, picture: Picture = None
) -> None:
    """Accuracy and calibration when training labels are wrong: pair and symmetric noise.

    METHODs are local(lr=0.1), fedavg and superfed-mm unless given.

    Example:
      glocal study noise fedavg apfl --repeats 5 --picture noise.png
    """
    specs = studies.repeats.unique_specs(methods or ["local(lr=0.1)", "fedavg", "superfed-mm"])
    with reporter(None) as progress:
        result = studies.noise.noise_study(specs, config, report=progress)
    show, draw = report.studies.show_noise, report.studies.draw_noise
    _deliver(result, result, show, draw, json, picture)


@app.command()
@with_settings(*SETTINGS, "repeats", repeats=3)
def decisions(
    config: Config,
    methods: Methods = None,
    response: Annotated[
        str,
        option(
            "The transform by which methods without their own are evaluated: exponential, "
            "frechet, gumbel, logistic, normal or weibull.",
            "Evaluation",
        ),
    ] = "normal",
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
    results = _decisions(studies.decisions.by_transform, methods, config, response=response)
    show, draw = report.decisions.show_decisions, report.decisions.draw_decisions
    _deliver({"decisions": results}, results, show, draw, json, picture)


@app.command()
@with_settings(*SETTINGS)
def weights(
    config: Config, methods: Methods = None, json: Json = None, picture: Picture = None
) -> None:
    """Who counts how much, over time? Every client's weight in every round, and its loss.

    METHODs are fedavg, term, afl, aaggff-s and aaggff-d unless given, without those that need every
    client in every round where clients are sampled.

    Example:
      glocal study weights --transform 'rotate(90, clients=3)' --partition iid --picture weights.png
    """
    results = _decisions(studies.decisions.weighted, methods, config)
    show, draw = report.decisions.show_weights, report.decisions.draw_weights
    _deliver({"weights": results}, results, show, draw, json, picture)


def _each(
    study: Callable[..., dict[str, Any]], specs: list[str], config: Config, **options: Any
) -> list[dict[str, Any]]:
    """What a study finds of each method, on the same data."""
    fed, arguments = config.federation(), {**config.arguments(), **options}
    with reporter(None) as progress:
        return [study(fed, spec, report=progress, **arguments) for spec in specs]


def _decisions(
    default: Callable[[bool], list[str]], methods: list[str] | None, config: Config, **options: Any
) -> list[dict[str, Any]]:
    """The decisions of the methods, or of those that are the default for the data."""
    arguments = {**config.arguments(), **options}
    study = partial(studies.decisions.decisions_of, methods, config.federation(), default)
    with reporter(None) as progress:
        return study(report=progress, **arguments)


def _deliver(
    result: dict[str, Any],
    shown: Any,
    show: Callable[[Any], None],
    draw: Callable[[Any, Path], None],
    json: Path | None,
    picture: Path | None,
) -> None:
    """Write, show and draw what a study found."""
    deliver(result, json, partial(show, shown), picture, partial(draw, shown))
