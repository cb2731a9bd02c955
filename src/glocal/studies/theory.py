"""Is the theory right, and is the code? Errors measured on drawn federations beside closed forms.

Liang et al., *Think locally, act globally*, 2020, figure 4 and theorem 1; the closed forms are in
:mod:`glocal.studies.linear_teacher`. For every ρ the same federations are drawn.

Departures: the figure was made with a number of draws that the paper does not say; here each mean
has its standard error over draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor

from glocal.core.progress import Report, silent
from glocal.core.validation import integer
from glocal.studies import linear_teacher as forms
from glocal.studies.curves import GRID, check_grid
from glocal.studies.linear_teacher import Teachers
from glocal.studies.teacher_draws import Draws, each_chunk, least_squares
from glocal.studies.teacher_training import train

RHOS = (0.5, 0.1, 0.06, 0.02)
"""Those of figure 4."""


def alpha_mixture(
    settings: Sequence[Teachers],
    *,
    draws: int = 60,
    trained: int = 1,
    grid: Sequence[float] = GRID,
    seed: int = 0,
    report: Report = silent,
) -> dict[str, Any]:
    """The error of α û_m + (1 − α) v̂ at every α, and where it is least, beside both forms.

    ``settings`` differ in ``rho`` alone. On the first ``trained`` draws both models are trained by
    the methods of this package, too.
    """
    integer(draws, "draws", 2)
    integer(trained, "trained", 0, draws)
    grid = check_grid(grid, "alpha")
    # The error is a parabola in α: α û + (1 − α) v̂ − u = α (û − v̂) + (v̂ − u).
    parabolas: list[list[Tensor]] = [[] for _ in settings]
    runs: list[dict[str, Any]] = []
    done = 0
    for drawn in each_chunk(settings[0], draws, seed):
        moments = drawn.noise_moments()
        for t, found in zip(settings, parabolas, strict=True):
            own, together = least_squares(drawn, t, moments)
            a, b = own - together, together - drawn.teachers(t.rho)
            found.append(torch.cat([drawn.products(*p) for p in ((a, a), (a, b), (b, b))], -1))
            for i in range(min(len(a), max(0, trained - done))):
                fits = own[i, ..., 0], together[i, 0, :, 0]
                runs.append({"draw": done + i, **train(drawn, i, t, fits, grid, report)})
        done += len(drawn.keys)
        report("drawing federations", done, draws)
    return {
        "study": "theory",
        **_about(settings[0], draws, seed),
        "grid": list(grid),
        "settings": [
            _mixture(t, torch.cat(found), grid)
            for t, found in zip(settings, parabolas, strict=True)
        ],
        "trained": runs,
    }


def _mixture(t: Teachers, parabola: Tensor, grid: Sequence[float]) -> dict[str, Any]:
    """What was measured at one ρ, from the coefficients [draws, 3] of every draw's parabola."""
    aa, ab, bb = parabola.unbind(-1)
    curve = [mean_and_se(g**2 * aa + 2 * g * ab + bb) for g in grid]
    found = -float(ab.mean() / aa.mean())
    # The standard error of a ratio of two means, to first order.
    off = float((ab + found * aa).std() / aa.mean() / len(aa) ** 0.5)
    star = forms.best_alpha(t)
    return {
        "rho": t.rho,
        "measured": curve,
        "closed_form": [forms.error(g, t) for g in grid],
        "printed": [forms.printed_error(g, t) for g in grid],
        "best_alpha": {
            "found": found,
            "se": off,
            "predicted": star,
            "printed": forms.printed_best_alpha(t),
        },
        "least_error": {
            "measured": mean_and_se(found**2 * aa + 2 * found * ab + bb),
            "closed_form": forms.error(star, t),
        },
    }


def bias_variance(
    settings: Sequence[Teachers],
    *,
    draws: int = 60,
    noises: int = 10,
    grid: Sequence[float] = GRID,
    seed: int = 0,
    report: Report = silent,
) -> dict[str, Any]:
    """Bias² and variance of the mixture, each measured, and whether they add up to its error.

    In each draw teachers and inputs stay, and the labels' noise is drawn ``noises`` times: over
    these are the mean and the variance of predictions, both without the bias of few draws. The
    error is measured with as many *other* noises, so that nothing makes the sum right but the
    theorem.
    """
    integer(draws, "draws", 2)
    integer(noises, "noises", 2)
    grid = check_grid(grid, "alpha")
    terms: list[list[Tensor]] = [[] for _ in settings]
    done = 0
    for drawn in each_chunk(settings[0], draws, seed):
        moments = drawn.noise_moments(2 * noises)
        for t, found in zip(settings, terms, strict=True):
            found.append(_terms(drawn, t, moments))
        done += len(drawn.keys)
        report("drawing federations", done, draws)
    measured = [torch.cat(found) for found in terms]
    t = settings[0]
    own, both, together = measured[0][:, :3].unbind(-1)
    return {
        "study": "bias-variance",
        **_about(t, draws, seed),
        "noises": noises,
        "grid": list(grid),
        "variances": {
            "own": {**mean_and_se(own), "closed_form": forms.local_variance(t)},
            "covariance": {**mean_and_se(both), "closed_form": forms.global_variance(t)},
            "global": {**mean_and_se(together), "closed_form": forms.global_variance(t)},
        },
        "settings": [
            _decomposition(t, found, grid) for t, found in zip(settings, measured, strict=True)
        ],
    }


def _terms(drawn: Draws, t: Teachers, moments: Tensor) -> Tensor:
    """[draws, 9]: variances, squares of the bias, errors; each of û with û, û with v̂, v̂ with v̂."""
    half = moments.shape[-1] // 2
    target = drawn.teachers(t.rho)
    fits = least_squares(drawn, t, moments)
    first, others = ([fit[..., part] for fit in fits] for part in (slice(half), slice(half, None)))
    means = [fit.mean(-1, keepdim=True) for fit in first]

    def products(off: Sequence[Tensor]) -> list[Tensor]:
        """Of û's and v̂'s deviations, [draws, noises] each."""
        own, together = (each.expand_as(off[0]) for each in off)
        return [drawn.products(*p) for p in ((own, own), (own, together), (together, together))]

    around = products([fit - mean for fit, mean in zip(first, means, strict=True)])
    variance = [each.sum(-1) / (half - 1) for each in around]
    squares = [each.squeeze(-1) for each in products([mean - target for mean in means])]
    # The square of a mean of few draws is too large by its own variance.
    bias = [square - v / half for square, v in zip(squares, variance, strict=True)]
    error = [each.mean(-1) for each in products([fit - target for fit in others])]
    return torch.stack([*variance, *bias, *error], -1)


def _decomposition(t: Teachers, terms: Tensor, grid: Sequence[float]) -> dict[str, Any]:
    """What was measured at one ρ, along α."""
    variance, bias, error = terms[:, :3], terms[:, 3:6], terms[:, 6:]

    def at(alpha: float, products: Tensor) -> Tensor:
        weights = (alpha**2, 2 * alpha * (1 - alpha), (1 - alpha) ** 2)
        return products @ torch.tensor(weights, dtype=torch.float64)

    def along(value: Callable[[float], Tensor]) -> list[dict[str, float]]:
        return [mean_and_se(value(g)) for g in grid]

    closed = [forms.bias_and_variance(g, t) for g in grid]
    return {
        "rho": t.rho,
        "squared_bias": along(lambda g: at(g, bias)),
        "variance": along(lambda g: at(g, variance)),
        "sum": along(lambda g: at(g, bias + variance)),
        "error": along(lambda g: at(g, error)),
        "left_over": along(lambda g: at(g, error - bias - variance)),
        "closed_form": {
            "squared_bias": [b for b, _ in closed],
            "variance": [v for _, v in closed],
        },
        "best_alpha": forms.best_alpha(t),
    }


def mean_and_se(values: Tensor) -> dict[str, float]:
    """The mean over draws, and its standard error."""
    return {"mean": float(values.mean()), "se": float(values.std() / len(values) ** 0.5)}


def with_rhos(t: Teachers, rhos: Sequence[float]) -> list[Teachers]:
    """The same setting with each ρ once, in the order given."""
    return [replace(t, rho=rho) for rho in dict.fromkeys(rhos)]


def _about(t: Teachers, draws: int, seed: int) -> dict[str, Any]:
    setting = asdict(t)
    del setting["rho"]
    return {**setting, "draws": draws, "seed": seed}
