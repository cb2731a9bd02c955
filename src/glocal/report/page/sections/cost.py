"""What it costs: the metric against parameters communicated and against gradients computed."""

from __future__ import annotations

from glocal.report.page import svg
from glocal.report.page.markup import Html, Place, tag
from glocal.report.page.sections.common import finished, panels, prefix, section, unit
from glocal.report.tables import short
from glocal.report.units import Unit


def cost(group: Place) -> Html | None:
    """A mark for each method, against what it sent and what it computed."""
    methods = finished(group)
    if len(methods) < 2:
        return None
    name, how = prefix(group), unit(group)
    there = panels(
        _against(
            f"{name}-sent",
            "communication",
            methods,
            ("params_up", "params_down"),
            "parameters sent, up and down",
            how,
        ),
        _against(
            f"{name}-computed",
            "computation",
            methods,
            ("gradient_evaluations",),
            "gradients, of one example each",
            how,
        ),
    )
    if there is None:
        return None
    note = "Further left costs less. All participants and rounds together, mean over repeats."
    return section(f"{name}-cost", "What it costs", tag("p", note), there)


def _against(
    name: str, what: str, methods: list[tuple[str, Place]], keys: tuple[str, ...], x: str, how: Unit
) -> Html | None:
    points = []
    for i, (method, place) in enumerate(methods):
        s = place.value["summary"]
        if s["mean"] is not None and all(s.get(k) is not None for k in keys):
            points.append((i, method, place, sum(s[k] for k in keys), s["mean"]))
    if len(points) < 2:
        return None
    panel = svg.Panel.of([0.0, *(p[3] for p in points)], [how.scale * p[4] for p in points])
    sign = " (%)" if how.heading.endswith("%") else ""
    lower = "; lower is better" if how.lower else ""
    panel.axes(x, f"mean {how.name}{sign}{lower}", x_text=svg.large)
    said = []
    for i, method, place, spent, mean in points:
        at = panel.x(spent), panel.y(how.scale * mean)
        tip = f"{method}: {how.value(mean)} at {short(spent)}"
        said.append(tip)
        drawn = svg.shape(svg.series_shape(i), *at, f"fill c{i % 7}", 5.5)
        panel.add(svg.mark(tip, (place / "summary").pointer, drawn))
    key = [entry for i, *_ in points for entry in svg.series_key([methods[i][0]], i)]
    title = f"Mean {how.name} against {what}"
    return svg.figure(name, panel, title, f"{'; '.join(said)}.", key=key)
