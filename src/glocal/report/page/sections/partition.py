"""The partition as a picture: who has how many training examples of which label."""

from __future__ import annotations

from collections.abc import Sequence

from glocal.report.page import svg
from glocal.report.page.markup import Html, Place, tag
from glocal.report.page.sections.common import finished, panels, prefix, section
from glocal.report.page.sections.forest import NAMED, beside, shortened

SHADES = (0.14, 0.3, 0.48, 0.66, 0.83, 1.0)
"""How dark a cell is, from few examples to most."""

MOST = 150
"""Participants that are drawn, evenly spaced where there are more."""


def partition(group: Place) -> Html | None:
    """A row for each participant, a column for each label."""
    counts = (group / "data").get("label_counts")
    methods = finished(group)
    if not counts.value or not methods:
        return None
    names = (group / "data").value.get("client_names") or []
    if len(names) != len(counts.value):
        return None
    step = -(-len(names) // MOST)
    drawn = list(range(0, len(names), step))
    note = "The darker, the more training examples of that label."
    if step > 1:
        note += f" {len(drawn)} of {len(names)} participants are drawn, evenly spaced."
    name = prefix(group)
    picture = _picture(f"{name}-labels", counts, names, drawn, note)
    return section(f"{name}-partition", "Who has which labels", panels(picture))


def _picture(
    name: str, counts: Place, names: Sequence[str], drawn: Sequence[int], note: str
) -> Html:
    named = len(drawn) <= NAMED
    left = beside([names[k] for k in drawn]) if named else 24.0
    right, top = svg.WIDTH - 12, 12.0
    high = 16.0 if named else 4.0
    classes = len(counts.value[0])
    x = svg.Scale(0, classes, left, right)
    bottom = top + high * len(drawn)
    panel = svg.Panel(x, svg.Scale(0, len(drawn), top, bottom), bottom + 42)
    most = max(1, max(max(row) for row in counts.value))
    for label in range(0, classes, max(1, -(-classes // 12))):
        panel.add(svg.label(str(label), x(label + 0.5), bottom + 17, "tick", anchor="middle"))
    panel.add(svg.label("label", (left + right) / 2, bottom + 36, "name", anchor="middle"))
    for i, k in enumerate(drawn):
        row, y = counts / k, top + high * i
        held = [f"{n} of label {c}" for c, n in enumerate(row.value) if n]
        parts = [_cells(row.value, x, y, high - (1 if named else 0.3), most)]
        if named:
            parts.append(
                svg.label(shortened(names[k]), left - 10, y + high - 4.5, "tick", anchor="end")
            )
        panel.add(svg.mark(f"{names[k]}: {', '.join(held)}", row.pointer, *parts))
    about = f"{len(drawn)} participants and {classes} labels; at most {most} examples of one label."
    return svg.figure(name, panel, "Training examples by label", about, note=note)


def _cells(row: Sequence[int], x: svg.Scale, y: float, high: float, most: int) -> Html:
    """The cells of one participant, by shade."""
    wide = x(1) - x(0) - 1
    shaded: dict[float, list[str]] = {}
    for label, n in enumerate(row):
        if n:
            shade = SHADES[min(len(SHADES) - 1, n * len(SHADES) // (most + 1))]
            cell = f"M{svg.px(x(label))} {svg.px(y)}h{svg.px(wide)}v{svg.px(high)}h-{svg.px(wide)}z"
            shaded.setdefault(shade, []).append(cell)
    paths = [
        tag("path", d="".join(cells), class_="shade", fill_opacity=shade)
        for shade, cells in sorted(shaded.items())
    ]
    return tag("g", *paths)
