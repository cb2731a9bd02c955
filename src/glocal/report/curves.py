"""Learning curves as a picture: losses, the metric on validation data, its spread over clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glocal.core.errors import GlocalError
from glocal.evaluation.measures import NAMES, SHARES
from glocal.evaluation.metrics import PERCENT
from glocal.experiment.learning_curves import LearningCurves, of_run
from glocal.report.canvas import (
    COLOURS,
    GREY,
    MARKERS,
    check_picture,
    every,
    label,
    new_figure,
    save,
    titled,
)
from glocal.report.tables import plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 14
"""Lines that can be told apart."""

RING: dict[str, Any] = {"marker": "o", "markersize": 10, "markerfacecolor": "none"}
"""Around a round that was kept."""

MARKED = 12
"""Markers on a line."""


FEW = 5
"""Up to so many repeats have their kept rounds in the title."""


def plot(runs: Any, path: str | Path | None = None, metric: str | None = None) -> Figure:
    """The figure of a run or of a comparison's runs; with a path, it is also written there."""
    if path is not None:
        check_picture(Path(path), "the picture")
    several = list(runs.values()) if isinstance(runs, dict) else [runs]
    curves = [each for each in map(of_run, several) if each.metrics]
    if not curves:
        names = ", ".join(run.method for run in several)
        raise GlocalError(f"there is nothing to draw: {names} has no round that was evaluated.")
    figure, title, note = draw(curves, metric)
    if path is None:
        return titled(figure, title, note)
    save(figure, Path(path), title, note)
    return figure


def draw(curves: Sequence[LearningCurves], asked: str | None = None) -> tuple[Figure, str, str]:
    """A panel for losses, one for the metric, and more for what else was recorded of it."""
    if len(curves) > MOST:
        raise GlocalError(
            f"{len(curves)} runs cannot be told apart in one picture: give {MOST} or fewer."
        )
    metric = _common(curves, asked)
    counts = all(each.metrics[0] == metric for each in curves)
    scale, unit = (100, " (%)") if metric in PERCENT else (1, "")
    name = NAMES.get(metric, metric)
    panels = ["loss", "metric"]
    if counts and any(each.points("val_gini") for each in curves):
        panels.append("gini")
    central = f"central_{metric}"
    if any(each.points(central) for each in curves):
        panels.append("central")
    figure = new_figure(0.8 + 4.3 * len(panels), 4.4)
    axes = dict(zip(panels, figure.subplots(1, len(panels), squeeze=False)[0], strict=True))
    for i, each in enumerate(curves):
        _line(axes["loss"], each, "train_loss", i, dashed=True)
        _line(axes["loss"], each, "val_loss", i)
        _line(axes["metric"], each, f"val_{metric}", i, scale)
        if counts:
            _line(axes["metric"], each, "val_worst10", i, scale, dashed=True)
        _mark_kept(axes["metric"], each, f"val_{metric}", i, scale)
        if "gini" in axes:
            _line(axes["gini"], each, "val_gini", i)
        if "central" in axes:
            _line(axes["central"], each, central, i, scale)
    lower = "; lower is better" if curves[0].lower(metric) else ""
    named = {
        "loss": "loss, mean over clients",
        "metric": f"validation {name}{unit}{lower}",
        "gini": f"Gini of validation {name} (×100)",
        "central": f"central test: {name}{unit}{lower}",
    }
    for panel, panel_axes in axes.items():
        label(panel_axes, "round", named[panel])
        panel_axes.xaxis.get_major_locator().set_params(integer=True)
    kept = any(each.kept for each in curves)
    _legends(axes, [each.name for each in curves], worst=counts, kept=kept)
    return figure, _title(curves, metric, name), _note(curves)


def _legends(axes: Mapping[str, Axes], names: Sequence[str], *, worst: bool, kept: bool) -> None:
    """Which colour is whose, once; and in each panel what is dashed."""
    from matplotlib.lines import Line2D

    def handle(text: str, **style: Any) -> Line2D:
        return Line2D(
            [], [], label=text, linewidth=1.2, **{"color": GREY, "markersize": 4, **style}
        )

    lines = [handle("validation"), handle("training", linestyle="--")]
    lines += [
        handle(name, color=COLOURS[i % len(COLOURS)], marker=_marker(i))
        for i, name in enumerate(names)
    ]
    axes["loss"].legend(handles=lines, fontsize=8, frameon=False)
    lines = [handle("mean over clients")]
    lines += [handle("worst 10 % of clients", linestyle="--")] if worst else []
    lines += [handle("kept round", linestyle="none", **RING)] if kept else []
    axes["metric"].legend(handles=lines, fontsize=8, frameon=False)


def _common(curves: Sequence[LearningCurves], asked: str | None) -> str:
    """The metric that is drawn: all runs must have it."""
    names = [each.metric(asked) for each in curves]
    if len(set(names)) > 1:
        shared = [m for m in curves[0].metrics if all(m in each.metrics for each in curves)]
        hint = (
            f"choose one that all have with --metric {shared[0]}" if shared else "draw them apart"
        )
        raise GlocalError(
            f"the runs are measured by different metrics ({', '.join(dict.fromkeys(names))}): "
            f"{hint}."
        )
    return names[0]


def _marker(i: int) -> str:
    return MARKERS[(i + i // len(COLOURS)) % len(MARKERS)]


def _line(
    axes: Axes, curves: LearningCurves, column: str, i: int, scale: float = 1, dashed: bool = False
) -> None:
    """The mean over repeats, and their range behind it."""
    points = curves.points(column)
    if not points:
        return
    rounds, colour = [point.round for point in points], COLOURS[i % len(COLOURS)]
    if curves.repeats > 1:
        low, high = ([scale * getattr(p, end) for p in points] for end in ("low", "high"))
        axes.fill_between(rounds, low, high, color=colour, alpha=0.12, linewidth=0)
    means = [scale * point.mean for point in points]
    common = sum(point.repeats == curves.repeats for point in points)
    style: dict[str, Any] = {
        "color": colour,
        "linestyle": "--" if dashed else "-",
        "linewidth": 1.2,
    }
    if common < len(points):  # some repeats have ended: the others are not the mean of all
        begin = max(0, common - 1)
        axes.plot(rounds[begin:], means[begin:], alpha=0.35, **style)
    axes.plot(
        rounds[:common],
        means[:common],
        marker=_marker(i),
        markevery=every(0, len(points), MARKED),
        markerfacecolor="white" if dashed else colour,
        markersize=4,
        **style,
    )


def _mark_kept(axes: Axes, curves: LearningCurves, column: str, i: int, scale: float) -> None:
    """A ring around the round that was kept, of each repeat."""
    for kept, value in curves.at_kept(column):
        colour = COLOURS[i % len(COLOURS)]
        axes.plot([kept], [scale * value], linestyle="none", color=colour, **RING)


def _title(curves: Sequence[LearningCurves], metric: str, name: str) -> str:
    """What validation data says of the best method, and of which rounds."""
    percent = metric in PERCENT
    choose = min if curves[0].lower(metric) else max
    best = {each.name: _value(each, metric) for each in curves}
    winner = choose(best, key=lambda run: best[run][0])
    value, when, rounds = best[winner]
    digits = 1 if percent else 3 if metric in SHARES else None
    shown = (
        f"{100 * value:.1f} %" if percent else f"{value:.{digits}f}" if digits else f"{value:.4g}"
    )
    return f"Validation {name} {when}: {shown}, with {winner} after {rounds}"


def _value(curves: LearningCurves, metric: str) -> tuple[float, str, str]:
    """The mean over the repeats' kept rounds; of the best round, where none are kept."""
    kept = curves.at_kept(f"val_{metric}")
    if not kept or len(kept) < curves.repeats:
        point = curves.best(metric)
        return point.mean, "at its best", f"round {point.round}"
    mean = sum(value for _, value in kept) / len(kept)
    if len({number for number, _ in kept}) == 1:
        return mean, "of the kept round", f"round {kept[0][0]}"
    numbers = [number for number, _ in kept]
    said = f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"
    if len(numbers) > FEW:
        said = f"{min(numbers)} to {max(numbers)}"
    return mean, "of the kept rounds", f"rounds {said}"


def _note(curves: Sequence[LearningCurves]) -> str:
    """Where the numbers come from, as far as the runs agree in it."""
    parts = []
    for key, words in (("data", "{}"), ("partition", "{}"), ("clients", "{} clients")):
        values = {str(each.about.get(key)) for each in curves}
        if len(values) == 1 and values != {"None"}:
            parts.append(words.format(*values))
    repeats = max(each.repeats for each in curves)
    if repeats > 1:
        parts.append(f"mean and range of {plural(repeats, 'repeat')}")
        if any(p.repeats < each.repeats for each in curves for p in each.points("val_loss")):
            parts[-1] += "; pale: of those that went on"
    if any(each.about.get("tune") for each in curves):
        parts.append("while rate and rounds were chosen, before validation data was trained on")
    return " · ".join(parts)
