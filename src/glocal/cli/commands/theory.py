"""``glocal study theory`` and ``bias-variance``: linear teachers, drawn and measured."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from glocal import report, studies
from glocal.cli.options import option, with_settings
from glocal.cli.output import JSON, PICTURE, deliver
from glocal.core.progress import reporter
from glocal.experiment.config import Config

PANEL = "Teachers"

RHO = option(
    None,
    "Spread of the clients' teachers, several times; 0.5, 0.1, 0.06 and 0.02 unless given.",
    show_default=False,
    panel=PANEL,
)
SIGMA = option(1.5, "Standard deviation of the labels' noise.", panel=PANEL)
CLIENTS = option(100, "Clients in a federation.", panel=PANEL)
EXAMPLES = option(2000, "Training examples of a client.", panel=PANEL)
TESTS = option(1000, "Test examples of a client.", panel=PANEL)
FEATURES = option(20, "Features of an example.", panel=PANEL)
WIDTH = option(1.0, "Features are uniform from −width to width.", panel=PANEL)
ALPHA = option(None, "Where to look, several times; 0, 0.1, …, 1 unless given.", show_default=False)


@with_settings("seed")
def theory(
    config: Config,
    draws: int = option(60, "Federations to draw."),
    trained: int = option(1, "Of these, how many are also trained by glocal's own methods."),
    alpha: list[float] | None = ALPHA,
    rho: list[float] | None = RHO,
    sigma: float = SIGMA,
    clients: int = CLIENTS,
    examples: int = EXAMPLES,
    tests: int = TESTS,
    features: int = FEATURES,
    width: float = WIDTH,
    json: Path | None = JSON,
    picture: Path | None = PICTURE,
) -> None:
    """Is the theory of local and global models right, and the code? Linear teachers, measured.

    Liang et al., Think locally, act globally, 2020, figure 4: the error of a mixture of each
    client's own model and the global one, beside the closed form, put right, and as printed.

    Examples:
      glocal study theory --picture theory.png

      glocal study theory --rho 0.1 --examples 100 --draws 200
    """
    teachers = partial(studies.linear_teacher.Teachers, sigma=sigma, clients=clients, tests=tests)
    setting = teachers(0.0, examples=examples, features=features, width=width)
    settings = studies.theory.with_rhos(setting, rho or studies.theory.RHOS)
    with reporter(None) as progress:
        result = studies.theory.alpha_mixture(
            settings,
            draws=draws,
            trained=trained,
            grid=alpha or studies.curves.GRID,
            seed=config.seed,
            report=progress,
        )
    show, draw = report.theory.show_theory, report.theory.draw_theory
    deliver(result, json, partial(show, result), picture, partial(draw, result))


@with_settings("seed")
def bias_variance(
    config: Config,
    draws: int = option(60, "Federations to draw: teachers and inputs."),
    noises: int = option(10, "How often the labels' noise of each is drawn."),
    alpha: list[float] | None = ALPHA,
    rho: list[float] | None = RHO,
    sigma: float = SIGMA,
    clients: int = CLIENTS,
    examples: int = EXAMPLES,
    tests: int = TESTS,
    features: int = FEATURES,
    width: float = WIDTH,
    json: Path | None = JSON,
    picture: Path | None = PICTURE,
) -> None:
    """What do own models trade for? Bias and variance of a mixture, each measured.

    Theorem 1 of the same paper: over the labels' noise, the squared bias and the variance of
    predictions add up to their error. The more of the own model, the less bias, the more variance.

    Example:
      glocal study bias-variance --picture bias-variance.png
    """
    teachers = partial(studies.linear_teacher.Teachers, sigma=sigma, clients=clients, tests=tests)
    setting = teachers(0.0, examples=examples, features=features, width=width)
    settings = studies.theory.with_rhos(setting, rho or studies.theory.RHOS)
    with reporter(None) as progress:
        result = studies.theory.bias_variance(
            settings,
            draws=draws,
            noises=noises,
            grid=alpha or studies.curves.GRID,
            seed=config.seed,
            report=progress,
        )
    show, draw = report.theory.show_bias_variance, report.theory.draw_bias_variance
    deliver(result, json, partial(show, result), picture, partial(draw, result))
