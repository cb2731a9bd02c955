"""The theory of linear teachers beside what was measured, as tables and pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glocal.report.canvas import COLOURS, GREY, label, new_figure, save
from glocal.report.studies import Result
from glocal.report.tables import show_table
from glocal.studies import linear_teacher as forms
from glocal.studies.linear_teacher import Teachers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CUT = 10
"""How many times the better end a panel's axis goes up to."""

FINE = [i / 200 for i in range(201)]
"""Where curves are drawn."""


def show_theory(result: Result) -> None:
    """Print a row for each ρ and α, and a row for each ρ about the best α."""
    grid, settings = result["grid"], result["settings"]
    rows = []
    for s in settings:
        for i, alpha in enumerate(grid):
            mean, closed, printed = s["measured"][i]["mean"], s["closed_form"][i], s["printed"][i]
            cells = [with_se(s["measured"][i]), short(closed), f"{mean / closed:.3f}"]
            rows.append(
                [f"{s['rho']:g}", f"{alpha:g}", *cells, short(printed), f"{mean / printed:.3f}"]
            )
    head = ["rho", "alpha", "measured error", "closed form", "ratio", "printed", "to printed"]
    show_table(
        head,
        rows,
        f"{setting_of(result)} Errors on new, noiseless examples: mean over "
        f"{result['draws']} drawn federations ± its standard error. The same draws serve every "
        "rho.",
        "alpha 0: the least-squares fit to all clients' examples; 1: each client's own. Ratio: "
        f"measured to closed form, at most {within(100 * _largest(settings))} % off. Printed: "
        "theorem 2 as published, right only where the inputs' E[xx'] is I/d, and what was measured "
        "as a multiple of it.",
    )
    best = []
    for s in settings:
        star, least = s["best_alpha"], s["least_error"]
        best.append(
            [
                f"{s['rho']:g}",
                with_se({"mean": star["found"], "se": star["se"]}),
                f"{star['predicted']:.4f}",
                f"{star['found'] - star['predicted']:+.4f}",
                f"{star['printed']:.4f}",
                with_se(least["measured"]),
                short(least["closed_form"]),
            ]
        )
    head = ["rho", "best alpha, found", "predicted", "off", "printed", "error there"]
    show_table([*head, "closed form"], best, *_of_training(result["trained"]))


def _of_training(runs: Sequence[Result]) -> list[str]:
    """What became of the draws on which the package's own methods were trained."""
    if not runs:
        return []
    draws = len({r["draw"] for r in runs})
    weights, errors = (max(r[k] for r in runs) for k in ("weights_apart", "errors_apart"))
    return [
        f"Trained by glocal on the first {'draw' if draws == 1 else f'{draws} draws'}, fedavg and "
        f"fedavg(shared=nothing) with {max(r['rounds'] for r in runs)} steps on all examples: "
        f"weights are within {_magnitude(weights)} of least squares, errors of their mixtures "
        f"within {_magnitude(errors)} of theirs, as a share."
    ]


def draw_theory(result: Result, path: Path) -> None:
    """Draw the error along α, a panel for each ρ, with both closed forms and the best α."""
    figure, panels, below = _panels(result)
    settings = result["settings"]
    for axes, s in zip(panels, settings, strict=True):
        star, t = s["best_alpha"], _teachers(result, s["rho"])
        means, ses = ([m[k] for m in s["measured"]] for k in ("mean", "se"))
        dots: dict[str, Any] = {"marker": "o", "markersize": 4, "linestyle": "", "capsize": 2}
        axes.errorbar(result["grid"], means, ses, label="measured", color=COLOURS[6], **dots)
        closed: dict[str, Any] = {"color": COLOURS[0], "linewidth": 1.8, "label": "closed form"}
        printed: dict[str, Any] = {"color": COLOURS[1], "linewidth": 1.5, "label": "as printed"}
        axes.plot(FINE, [forms.error(a, t) for a in FINE], **closed)
        axes.plot(FINE, [forms.printed_error(a, t) for a in FINE], linestyle="--", **printed)
        dotted: dict[str, Any] = {"color": GREY, "linewidth": 1, "linestyle": ":"}
        axes.axvline(star["found"], label="least error measured: α* found", **dotted)
        axes.set_yscale("log")
        _plain_numbers(axes)
        label(axes, "α  (0: global, 1: own)", "")
        axes.set_title(
            f"ρ = {s['rho']:g}\nα* found {star['found']:.3f}, predicted {star['predicted']:.3f},\n"
            f"printed {star['printed']:.3f}",
            fontsize=9,
        )
    panels[0].set_ylabel("mean squared error (log scale)")
    _legend(below, panels[0])
    stars = [s["best_alpha"] for s in settings]
    off = max(abs(star["found"] - star["predicted"]) for star in stars)
    times = max(m["mean"] / p for s in settings for m, p in _both(s))
    title = (
        f"Errors are within {within(100 * _largest(settings))} % of the closed form and α* within "
        f"{within(off, 3)};\nthey are up to {times:.1f} times what the printed "
        "form says"
    )
    save(figure, path, title, note(result, f"{result['draws']} draws; bars: standard errors"))


def _both(s: Result) -> list[tuple[Result, float]]:
    return list(zip(s["measured"], s["printed"], strict=True))


def show_bias_variance(result: Result) -> None:
    """Print a row for each ρ and α: bias², variance, their sum, and the error; then variances."""
    rows = []
    for s in result["settings"]:
        closed = s["closed_form"]
        for i, alpha in enumerate(result["grid"]):
            bias, variance = closed["squared_bias"][i], closed["variance"][i]
            total, error = s["sum"][i]["mean"], s["error"][i]["mean"]
            rows.append(
                [
                    f"{s['rho']:g}",
                    f"{alpha:g}",
                    with_se(s["squared_bias"][i]),
                    short(bias),
                    with_se(s["variance"][i]),
                    short(variance),
                    short(total),
                    short(error),
                    f"{total / error:.4f} ± {s['left_over'][i]['se'] / error:.4f}",
                ]
            )
    head = ["rho", "alpha", "bias²", "closed", "variance", "closed", "sum", "error", "sum / error"]
    n = result["noises"]
    show_table(
        head,
        rows,
        f"{setting_of(result)} In each of {result['draws']} draws teachers and inputs stay and the "
        f"labels' noise is drawn {n} times: bias² is how far the mean prediction is from the "
        f"teacher's, variance how far predictions are from their mean. Error: of {n} other noises, "
        "so that the sum need not be equal. ±: standard errors over draws; what is measured of a "
        "bias² of 0 may be below 0.",
    )
    variances = result["variances"]
    names = {
        "own": "each client's own model",
        "covariance": "covariance of the two",
        "global": "global model",
    }
    parts = [
        [names[k], with_se(v), short(v["closed_form"]), f"{v['mean'] / v['closed_form']:.3f}"]
        for k, v in variances.items()
    ]
    show_table(["variance of predictions", "measured", "closed form", "ratio"], parts)


def draw_bias_variance(result: Result, path: Path) -> None:
    """Draw bias² and variance on top of each other along α, and the error on top of both."""
    figure, panels, below = _panels(result)
    grid, settings = result["grid"], result["settings"]
    for axes, s in zip(panels, settings, strict=True):
        names = ["bias²: clients differ", "variance: labels are noisy"]
        filled = [_along(grid, s[k]) for k in ("squared_bias", "variance")]
        axes.stackplot(FINE, *filled, labels=names, colors=[COLOURS[4], COLOURS[5]])
        t = _teachers(result, s["rho"])
        lines: dict[str, Any] = {"color": COLOURS[6], "linewidth": 1}
        bias = [forms.bias_and_variance(a, t)[0] for a in FINE]
        axes.plot(FINE, bias, linestyle="--", label="bias², closed form", **lines)
        axes.plot(FINE, [forms.error(a, t) for a in FINE], label="sum, closed form", **lines)
        errors = [m["mean"] for m in s["error"]]
        dots: dict[str, Any] = {"marker": "o", "markersize": 4, "linestyle": ""}
        axes.plot(grid, errors, color=COLOURS[1], label="error, of other noises", **dots)
        axes.axvline(s["best_alpha"], color=GREY, linestyle=":", label="α*, predicted")
        top, cut = 1.08 * max(errors), CUT * min(errors[0], errors[-1])
        title = f"ρ = {s['rho']:g}"
        if top > cut:
            side = grid[errors.index(max(errors))]
            title += f" (cut off: {max(errors):.2f} at α = {side:g})"
        axes.set_ylim(0, min(top, cut))
        axes.set_xlim(-0.03, 1.03)
        label(axes, "α  (0: global, 1: own)", "")
        axes.set_title(title, fontsize=9)
    panels[0].set_ylabel("mean squared error")
    _legend(below, panels[0])
    off = max(
        abs(total["mean"] / error["mean"] - 1)
        for s in settings
        for total, error in zip(s["sum"], s["error"], strict=True)
    )
    title = (
        f"Bias² and variance add up to the error, to {within(100 * off)} %:\nthe more of the own "
        "model, the less bias and the more variance"
    )
    more = f"{result['draws']} draws of teachers and inputs, {result['noises']} noises each"
    save(figure, path, title, note(result, more))


def note(result: Result, more: str) -> str:
    """Where a picture's numbers come from."""
    return (
        f"linear teachers, {result['features']} features, {result['clients']} clients with "
        f"{result['examples']} examples, σ = {result['sigma']:g}, inputs uniform in "
        f"±{result['width']:g} · {more}"
    )


def setting_of(result: Result) -> str:
    """The setting as a sentence."""
    return (
        f"{result['clients']} clients, {result['examples']} training and {result['tests']} test "
        f"examples each, {result['features']} features uniform in ±{result['width']:g}, sigma "
        f"{result['sigma']:g}."
    )


def with_se(value: Result) -> str:
    """``0.06707 ± 0.00029``: two digits of the standard error that count, and no more."""
    se = value["se"]
    digits = min(9, max(0, 1 - math.floor(math.log10(se)))) if se > 0 else 6
    return f"{value['mean']:.{digits}f} ± {se:.{digits}f}"


def within(value: float, digits: int = 1) -> str:
    """A bound on the value: rounded up, never down."""
    return f"{math.ceil(value * 10**digits) / 10**digits:.{digits}f}"


def _magnitude(value: float) -> str:
    """A bound on a small value, ``2e-07``."""
    power = math.floor(math.log10(value)) if value > 0 else 0
    return f"{math.ceil(value / 10.0**power) * 10.0**power:.0e}"


def short(value: float) -> str:
    """Four digits that count."""
    return f"{value:.4g}"


def _largest(settings: Sequence[Result]) -> float:
    """By how much a measured error is off its closed form, at the most."""
    off = [
        abs(m["mean"] / c - 1)
        for s in settings
        for m, c in zip(s["measured"], s["closed_form"], strict=True)
    ]
    return float(max(off))


def _panels(result: Result) -> tuple[Figure, list[Axes], Axes]:
    """A panel for each ρ, side by side, and a place for the legend below."""
    count = len(result["settings"])
    figure = new_figure(max(7.5, 3.2 * count), 4.8)
    grid = figure.add_gridspec(2, count, height_ratios=[1, 0.04])
    below = figure.add_subplot(grid[1, :])
    below.set_axis_off()
    return figure, [figure.add_subplot(grid[0, i]) for i in range(count)], below


def _legend(below: Axes, axes: Axes) -> None:
    """One legend for all panels, where it hides nothing."""
    handles, names = axes.get_legend_handles_labels()
    few = 6 if len(axes.figure.axes) > 3 else 3
    below.legend(handles, names, loc="center", ncols=few, fontsize=8, frameon=False)


def _teachers(result: Result, rho: float) -> Teachers:
    names = ("sigma", "features", "clients", "examples", "tests", "width")
    return Teachers(rho, **{name: result[name] for name in names})


def _along(grid: Sequence[float], values: Sequence[Result]) -> list[float]:
    """What was measured, on the fine grid: parabolas in α, which three points determine."""
    import numpy as np

    means = [v["mean"] for v in values]
    if len(grid) < 3:
        return list(map(float, np.interp(FINE, grid, means)))
    return list(map(float, np.polyval(np.polyfit(grid, means, 2), FINE)))


def _plain_numbers(axes: Axes) -> None:
    """Ticks of a log axis at 1, 2 and 5 times powers of ten, as numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
