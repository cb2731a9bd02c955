"""How evenly participants are served: Lorenz curves, and the figures of each method."""

from __future__ import annotations

from glocal.evaluation.metrics import PERCENT, lorenz
from glocal.report.page import svg
from glocal.report.page.markup import Html, Place, known, tag
from glocal.report.page.sections import common
from glocal.report.page.sections.learning import gini
from glocal.report.tables import number
from glocal.report.units import Unit

POINTS = 100
"""Of a curve that are drawn."""


def fairness(group: Place) -> Html | None:
    """The spread of the metric over participants."""
    methods = [(n, m) for n, m in common.finished(group) if m.value["clients"]]
    if not methods:
        return None
    name, how = common.prefix(group), common.unit(group)
    head = ["method", "worst 10 %", "median", "best 10 %", "gap", "Gini ×100"]
    sign = ", in %" if how.metric in PERCENT else ", ×100" if how.scale == 100 else ""
    rows = [
        [
            tag("bdi", n),
            *(_figure(m, k, how) for k in ("worst10", "median", "best10", "gap")),
            (m / "summary").get("gini").number(number),
        ]
        for n, m in methods
    ]
    note = (
        "Worst and best 10 %: the mean over a tenth of the participants; gap: between the best "
        "and the worst. A Lorenz curve shows which share of the sum of everybody's "
        f"{how.name} the lowest have: on the diagonal all have the same."
    )
    return common.section(
        f"{name}-fairness",
        "How evenly",
        tag("p", note),
        common.table(
            f"{name}-fairness-table", f"Spread of {how.name} over participants{sign}", head, rows
        ),
        common.panels(_lorenz(name, methods, how), gini(group)),
    )


def _figure(method: Place, key: str, how: Unit) -> Html:
    return (method / "summary").get(key).number(how.value)


def _lorenz(name: str, methods: list[tuple[str, Place]], how: Unit) -> Html | None:
    curves = []
    for i, (n, m) in enumerate(methods[:14]):
        values = [row.value["value"] for row in common.drawn(m) if known(row, "value")]
        points = lorenz(values) if values and min(values) >= 0 else []
        step = max(1, len(points) // POINTS)
        if points:
            curves.append((i, n, [*points[:-1:step], points[-1]]))
    if not curves:
        return None
    panel = svg.Panel.of([0, 100], [0, 100], height=340)
    panel.axes("% of participants, from the lowest", f"% of the sum of {how.name}")
    panel.diagonal()
    for i, _, points in curves:
        panel.path([(100 * a, 100 * b) for a, b in points], i)
    for i, _, points in curves:
        for a, b in points[:: max(1, len(points) // 6)][1:-1]:
            shape = svg.shape(
                svg.series_shape(i), panel.x(100 * a), panel.y(100 * b), f"fill c{i % 7}", 3.2
            )
            panel.add(shape)
    key = svg.series_key([n for _, n, _ in curves])
    said = "; ".join(
        f"Gini of {n} {number(m.value['summary'].get('gini'))}" for n, m in methods[:14]
    )
    title = f"Lorenz curves of {how.name}"
    return svg.figure(f"{name}-lorenz", panel, title, f"{said}.", key=key)
