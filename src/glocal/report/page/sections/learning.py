"""Learning curves: losses, the metric on validation data with its worst tenth, Gini."""

from __future__ import annotations

from collections.abc import Sequence

from glocal.evaluation.measures import NAMES
from glocal.evaluation.metrics import PERCENT
from glocal.report.page import svg
from glocal.report.page.markup import Html, Place, tag
from glocal.report.page.sections.common import Methods, panels, prefix, section

MOST = 14
"""Lines that can be told apart."""


def with_curves(group: Place) -> Methods:
    """The methods of which rounds were recorded."""
    methods = [(n, m) for n, m in (group / "methods").items() if m.value.get("curves")]
    return methods[:MOST]


def learning(group: Place) -> Html | None:
    """A panel for each thing that was recorded by round."""
    methods = with_curves(group)
    if not methods:
        return None
    first = methods[0][1].value["curves"]
    metric, name = first["metric"], prefix(group)
    same = [(n, m) for n, m in methods if m.value["curves"]["metric"] == metric]
    title, scale = NAMES.get(metric, metric), 100 if metric in PERCENT else 1
    sign = " (%)" if scale == 100 else ""
    lower = "; lower is better" if first["lower"] else ""
    figures = [
        _panel(
            f"{name}-loss",
            "Loss by round",
            same,
            ("val_loss", "train_loss"),
            "loss",
            1,
            "Solid: validation; dashed: training.",
        ),
        _panel(
            f"{name}-metric",
            f"Validation {title} by round",
            same,
            (f"val_{metric}", "val_worst10"),
            f"validation {title}{sign}{lower}",
            scale,
            "Solid: mean over participants; dashed: worst 10 % of them.",
        ),
        _panel(
            f"{name}-central",
            f"Central test {title} by round",
            same,
            (f"central_{metric}",),
            f"central {title}{sign}{lower}",
            scale,
            None,
        ),
    ]
    about: list[str] = []
    if first["repeats"] > 1:
        about.append("Lines are means over repeats, and their range is behind them. ")
    if first["tuned"]:
        about.append("While rate and rounds were chosen, before validation data was trained on. ")
    about += _kept(same)
    left = sum(bool(m.get("curves")) for m in group.value["methods"].values()) - len(methods)
    if left:
        about.append(f"{left} methods more are not drawn: {MOST} lines can be told apart.")
    there = panels(*figures)
    text = tag("p", *about) if about else None
    return section(f"{name}-learning", "Learning", text, there) if there else None


def gini(group: Place) -> Html | None:
    """How unevenly participants are served, by round."""
    methods = with_curves(group)
    if not methods:
        return None
    metric = methods[0][1].value["curves"]["metric"]
    same = [(n, m) for n, m in methods if m.value["curves"]["metric"] == metric]
    title = f"Gini of validation {NAMES.get(metric, metric)} by round"
    about = (("val_gini",), "Gini ×100", 1, "0: all the same.")
    return _panel(f"{prefix(group)}-gini-rounds", title, same, *about)


def _kept(methods: Methods) -> list[str]:
    """The rounds that were kept, of each method that could end early."""
    said: list[str] = []
    for name, method in methods:
        rounds = [kept.number() for kept in method / "curves" / "kept"]
        if rounds:
            said += ["; " if said else "Kept round of each repeat, ringed: ", f"{name} "]
            said += [part for each in rounds for part in (", ", each)][1:]
    return [*said, ". "] if said else []


def _panel(
    name: str,
    title: str,
    methods: Methods,
    columns: Sequence[str],
    y: str,
    scale: float,
    note: str | None,
) -> Html | None:
    """One or two columns of every method: the first solid, the second dashed."""
    held = [
        (i, n, column, (m / "curves" / "columns" / column))
        for i, (n, m) in enumerate(methods)
        for column in columns
        if column in m.value["curves"]["columns"]
    ]
    if not any(column == columns[0] for _, _, column, _ in held):
        return None
    points = [p for *_, place in held for p in place.value]
    panel = svg.Panel.of(
        [p[0] for p in points], [scale * v for p in points for v in p[2:4]], height=300
    )
    panel.axes("round", y, integers=True)
    for i, _, column, place in held:
        solid = column == columns[0]
        if solid:
            panel.band([(t, scale * low, scale * high) for t, _, low, high in place.value], i)
        panel.path([(t, scale * mean) for t, mean, _, _ in place.value], i, dashed=not solid)
    for i, n, column, place in held:
        if column == columns[0]:
            _marks(panel, methods[i][1], n, i, place, scale)
    ends = [
        f"{n}: {_shown(p.value[-1][1], scale)} at round {p.value[-1][0]}"
        for _, n, column, p in held
        if column == columns[0] and p.value
    ]
    key = svg.series_key([n for n, _ in methods])
    return svg.figure(name, panel, title, f"At the end, {'; '.join(ends)}.", key=key, note=note)


def _marks(panel: svg.Panel, method: Place, name: str, i: int, points: Place, scale: float) -> None:
    """Markers on a line, about twelve, and rings around kept rounds."""
    step = max(1, len(points.value) // 12)
    kept = set(method.value["curves"]["kept"])
    for k, (t, mean, _, _) in enumerate(points.value):
        if k % step and k != len(points.value) - 1 and t not in kept:
            continue
        x, y = panel.x(t), panel.y(scale * mean)
        drawn = [svg.shape(svg.series_shape(i), x, y, f"fill c{i % 7}", 3.2)]
        if t in kept:
            drawn.append(svg.shape("circle", x, y, f"ring c{i % 7}", 7))
        tip = f"{name}, round {t}: {_shown(mean, scale)}"
        panel.add(svg.mark(tip, f"{points.pointer}/{k}", *drawn))


def _shown(value: float, scale: float) -> str:
    return f"{100 * value:.1f} %" if scale == 100 else f"{value:.4g}"
