"""``glocal study theory`` and ``bias-variance``: linear teachers, drawn and measured."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from glocal import report, studies
from glocal.cli.options import option, with_argument, with_settings
from glocal.cli.output import JSON, PICTURE, deliver
from glocal.core.progress import reporter
from glocal.experiment.config import Config

of_teachers = partial(option, panel="Teachers")

ALPHA = option(None, "Where to look, several times; 0, 0.1, …, 1 unless given.", show_default=False)


def teachers(
    rho: list[float] | None = of_teachers(
        None,
        "Spread of the clients' teachers, several times; 0.5, 0.1, 0.06 and 0.02 unless given.",
        show_default=False,
    ),
    sigma: float = of_teachers(1.5, "Standard deviation of the labels' noise."),
    clients: int = of_teachers(100, "Clients in a federation."),
    examples: int = of_teachers(2000, "Training examples of a client."),
    tests: int = of_teachers(1000, "Test examples of a client."),
    features: int = of_teachers(20, "Features of an example."),
    width: float = of_teachers(1.0, "Features are uniform from −width to width."),
) -> list[Any]:
    """The settings of a federation's teachers, one for each ρ."""
    sizes = {"clients": clients, "examples": examples, "tests": tests, "features": features}
    setting = studies.linear_teacher.Teachers(0.0, sigma=sigma, width=width, **sizes)
    return studies.theory.with_rhos(setting, rho or studies.theory.RHOS)


@with_settings("seed")
@with_argument(teachers)
def theory(
    config: Config,
    *,
    draws: int = option(60, "Federations to draw."),
    trained: int = option(1, "Of these, how many are also trained by glocal's own methods."),
    alpha: list[float] | None = ALPHA,
    teachers: list[Any],
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
    study = partial(studies.theory.alpha_mixture, teachers, draws=draws, trained=trained)
    result = _found(study, alpha, config)
    show, draw = report.theory.show_theory, report.theory.draw_theory
    deliver(result, json, partial(show, result), picture, partial(draw, result))


@with_settings("seed")
@with_argument(teachers)
def bias_variance(
    config: Config,
    *,
    draws: int = option(60, "Federations to draw: teachers and inputs."),
    noises: int = option(10, "How often the labels' noise of each is drawn."),
    alpha: list[float] | None = ALPHA,
    teachers: list[Any],
    json: Path | None = JSON,
    picture: Path | None = PICTURE,
) -> None:
    """What do own models trade for? Bias and variance of a mixture, each measured.

    Theorem 1 of the same paper: over the labels' noise, the squared bias and the variance of
    predictions add up to their error. The more of the own model, the less bias, the more variance.

    Example:
      glocal study bias-variance --picture bias-variance.png
    """
    study = partial(studies.theory.bias_variance, teachers, draws=draws, noises=noises)
    result = _found(study, alpha, config)
    show, draw = report.theory.show_bias_variance, report.theory.draw_bias_variance
    deliver(result, json, partial(show, result), picture, partial(draw, result))


def _found(
    study: Callable[..., dict[str, Any]], alpha: list[float] | None, config: Config
) -> dict[str, Any]:
    """What a study finds along α."""
    with reporter(None) as progress:
        return study(grid=alpha or studies.curves.GRID, seed=config.seed, report=progress)
