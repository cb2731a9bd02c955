"""What it costs: parameters communicated and gradients computed, and the metric against them."""

from __future__ import annotations

from glocal.report.legend import any_compressed
from glocal.report.page import svg
from glocal.report.page.markup import Html, Place, tag
from glocal.report.page.sections import common
from glocal.report.recorded import recorded
from glocal.report.tables import short
from glocal.report.units import Unit


def cost(group: Place) -> Html | None:
    """What each method sent and computed, and a mark for each against that."""
    methods = common.finished(group)
    if not methods:
        return None
    name, how = common.prefix(group), common.unit(group)
    there = common.panels(
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
    left = " Further left costs less." if there else ""
    note = f"All participants and rounds together, mean over repeats.{left}"
    costs = _table(f"{name}-cost-table", methods)
    return common.section(f"{name}-cost", "What it costs", tag("p", note), there, costs)


def _table(name: str, methods: common.Methods) -> Html:
    in_bytes = any_compressed({n: recorded(m.value) for n, m in methods})
    columns = {"parameters sent up": "params_up", "sent down": "params_down"}
    columns |= {"bytes up": "bytes_up"} if in_bytes else {}
    columns |= {"gradients of one example": "gradient_evaluations"}
    rows = [
        [tag("bdi", n), *((m / "summary").get(k).number(short) for k in columns.values())]
        for n, m in methods
    ]
    return common.table(name, "What each method costs", ["method", *columns], rows)


def _against(
    name: str, what: str, methods: common.Methods, keys: tuple[str, ...], x: str, how: Unit
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
