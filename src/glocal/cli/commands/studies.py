"""``glocal study …``: train what a study needs, print its table, write its figures and picture."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import typer

from glocal import report, studies
from glocal.cli.commands.fair_representations import fair_representations
from glocal.cli.commands.newcomers import newcomers
from glocal.cli.commands.theory import bias_variance, theory
from glocal.cli.options import evaluation, method_names, option, with_settings
from glocal.cli.output import JSON, PICTURE, deliver
from glocal.core.progress import reporter
from glocal.experiment.config import Config

app = typer.Typer(
    no_args_is_help=True,
    help="What happens between all-local and all-global: curves, landscapes and tables.",
)

SETTINGS = ("Data", "Training", "seed", "engine", "device", "precision")
"""The settings that all studies take."""

METHODS = method_names()
GRID = option(None, "Where to look, several times; 0, 0.1, …, 1 unless given.", show_default=False)


@app.command()
@with_settings(*SETTINGS, "repeats", "baseline", rounds=20, repeats=3)
def split(
    config: Config,
    methods: list[str] | None = METHODS,
    side: str = option("input", "Where the local part begins to grow: input or output."),
    json: Path | None = JSON,
    picture: Path | None = PICTURE,
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
    deliver({"splits": results}, json, partial(show, results), picture, partial(draw, results))


@app.command("learned-split")
@with_settings(*SETTINGS, "repeats", "baseline", rounds=20, repeats=3)
def learned_split(
    config: Config,
    methods: list[str] | None = METHODS,
    passes: int = option(2, "How often every gate is tried, at most."),
    json: Path | None = JSON,
) -> None:
    """Which layers should be shared? A gate for each, opened or closed on validation data.

    METHODs are bases whose shared layers are learnt; fedavg and lg-fedavg unless given.

    Example:
      glocal study learned-split fedavg --model 'mlp(64,64)' --partition 'classes(3)'
    """
    specs = studies.repeats.unique_specs(methods or ["fedavg", "lg-fedavg"])
    for spec in specs:
        studies.split_sweep.with_shared(spec, "everything")
    results = _each(studies.learned_split.learned_split, specs, config, passes=passes)
    show = partial(report.studies.show_learned_split, results)
    deliver({"learned_splits": results}, json, show)


@app.command()
@with_settings(*SETTINGS, "repeats", "jobs", "metric", "same", rounds=20, repeats=3, jobs=0)
def placebo(
    config: Config,
    methods: list[str] | None = METHODS,
    times: int = option(1, "How often each method is set against itself, with other seeds."),
    json: Path | None = JSON,
) -> None:
    """Are verdicts to be believed here? A method against itself, trained with other seeds.

    Nobody can be better or worse off than with the same method, so whoever is called is called by
    chance: of all clients no more than a tenth should be. METHODs are local and fedavg unless
    given. 'glocal compare --placebo FILE' shows what --json FILE wrote beside its verdicts.

    Examples:
      glocal study placebo --clients 20 --partition 'dirichlet(0.3)' --repeats 5

      glocal study placebo local ditto --data hospitals.csv --client hospital --label outcome
    """
    specs = studies.repeats.unique_specs(methods or ["local", "fedavg"])
    fed = config.federation()
    with reporter(None) as progress:
        result = studies.placebo.placebo(specs, fed, config, times, progress)
    deliver(result, json, partial(report.studies.show_placebo, result))


@app.command()
@with_settings(*SETTINGS, "repeats", rounds=20, repeats=3)
def interpolate(
    config: Config,
    local: str = option(
        "local",
        "How clients train alone: local, or 'fedavg(shared=nothing)' to begin where the global "
        "model begins.",
    ),
    together: str = option("fedavg", "What trains the global model."),
    alpha: list[float] | None = GRID,
    json: Path | None = JSON,
    picture: Path | None = PICTURE,
) -> None:
    """Between each client's own model and the global one: mix weights, or mix predictions.

    Example:
      glocal study interpolate --local 'fedavg(shared=nothing)' --picture between.png
    """
    studies.repeats.unique_specs([local, together])
    grid = studies.curves.check_grid(alpha or studies.curves.GRID, "alpha")
    options = {**config.arguments(), "local": local, "together": together, "grid": grid}
    with reporter(None) as progress:
        result = studies.curves.interpolate(_of_classes(config), report=progress, **options)
    show, draw = report.studies.show_interpolation, report.studies.draw_interpolation
    deliver(result, json, partial(show, result), picture, partial(draw, result))


@app.command()
@with_settings(*SETTINGS, "repeats", rounds=20, repeats=3)
def mixture(
    config: Config,
    methods: list[str] | None = METHODS,
    lam: list[float] | None = GRID,
    json: Path | None = JSON,
    picture: Path | None = PICTURE,
) -> None:
    """SuPerFed and APFL: accuracy, loss and calibration along the mixture of two models.

    METHODs are apfl, superfed-mm and superfed-lm, all three unless given.

    Example:
      glocal study mixture superfed-mm 'superfed-mm(nu=0)' --picture lambda.png
    """
    specs = studies.repeats.unique_specs(methods or ["apfl", "superfed-mm", "superfed-lm"])
    for spec in specs:
        studies.curves.own_name(spec)
    grid = studies.curves.check_grid(lam or studies.curves.GRID, "lam")
    results = _each(studies.curves.mixture_curve, specs, config, grid=grid)
    show, draw = report.studies.show_mixture, report.studies.draw_mixture
    deliver({"mixtures": results}, json, partial(show, results), picture, partial(draw, results))


@app.command()
@with_settings(*SETTINGS, rounds=20)
def landscape(
    config: Config,
    methods: list[str] | None = METHODS,
    points: str = option(
        "clients", "clients: the server's model and two clients'; seeds: three trainings."
    ),
    size: int = option(31, "Points on a side of the grid."),
    json: Path | None = JSON,
    picture: Path | None = PICTURE,
) -> None:
    """The loss in the plane through three models, and the barriers between them.

    METHODs are fedavg, superfed-mm and superfed-lm unless given.

    Example:
      glocal study landscape fedavg ditto --points clients --picture landscape.png
    """
    specs = studies.repeats.unique_specs(methods or ["fedavg", "superfed-mm", "superfed-lm"])
    results = _each(studies.landscape.landscape, specs, config, points=points, size=size)
    show, draw = report.studies.show_landscape, report.studies.draw_landscape
    deliver({"landscapes": results}, json, partial(show, results), picture, partial(draw, results))


@app.command()
@with_settings(*SETTINGS, "repeats", partition="dirichlet(10)", rounds=20, repeats=3)
def noise(
    config: Config,
    methods: list[str] | None = METHODS,
    json: Path | None = JSON,
    picture: Path | None = PICTURE,
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
    deliver(result, json, partial(show, result), picture, partial(draw, result))


@app.command()
@with_settings(*SETTINGS, "repeats", repeats=3)
def decisions(
    config: Config,
    methods: list[str] | None = METHODS,
    response: str = evaluation(
        "normal",
        "The transform by which methods without their own are evaluated: exponential, frechet, "
        "gumbel, logistic, normal or weibull.",
    ),
    json: Path | None = JSON,
    picture: Path | None = PICTURE,
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
    deliver({"decisions": results}, json, partial(show, results), picture, partial(draw, results))


@app.command()
@with_settings(*SETTINGS)
def weights(
    config: Config,
    methods: list[str] | None = METHODS,
    json: Path | None = JSON,
    picture: Path | None = PICTURE,
) -> None:
    """Who counts how much, over time? Every client's weight in every round, and its loss.

    METHODs are fedavg, term, afl, aaggff-s and aaggff-d unless given, without those that need every
    client in every round where clients are sampled.

    Example:
      glocal study weights --transform 'rotate(90, clients=3)' --partition iid --picture weights.png
    """
    results = _decisions(studies.decisions.weighted, methods, config)
    show, draw = report.decisions.show_weights, report.decisions.draw_weights
    deliver({"weights": results}, json, partial(show, results), picture, partial(draw, results))


app.command()(newcomers)
app.command("fair-representations")(fair_representations)
app.command()(theory)
app.command("bias-variance")(bias_variance)


def _of_classes(config: Config) -> Any:
    """The clients' data, whose labels are classes: these studies are about accuracies."""
    from glocal.data.schema import needs_classes  # which needs torch, and the help need not wait

    fed = config.federation()
    needs_classes(fed, "this study")
    return fed


def _each(
    study: Callable[..., dict[str, Any]], specs: list[str], config: Config, **options: Any
) -> list[dict[str, Any]]:
    """What a study finds of each method, on the same data."""
    fed, arguments = _of_classes(config), {**config.arguments(), **options}
    with reporter(None) as progress:
        return [study(fed, spec, report=progress, **arguments) for spec in specs]


def _decisions(
    default: Callable[[bool], list[str]], methods: list[str] | None, config: Config, **options: Any
) -> list[dict[str, Any]]:
    """The decisions of the methods, or of those that are the default for the data."""
    study = partial(studies.decisions.decisions_of, methods, config.federation(), default)
    with reporter(None) as progress:
        return study(report=progress, **config.arguments(), **options)
