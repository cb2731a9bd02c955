"""How far confidence is from accuracy: the calibration errors of every participant's model."""

from __future__ import annotations

from glocal.report.page import svg
from glocal.report.page.markup import Html, Place, known, tag
from glocal.report.page.sections.common import (
    drawn,
    finished,
    panels,
    prefix,
    section,
    sign,
    table,
)


def calibration(group: Place) -> Html | None:
    """ECE and MCE: their means, and a mark for each participant."""
    methods = [
        (n, m) for n, m in finished(group) if any(known(row, "ece", "mce") for row in drawn(m))
    ]
    if not methods:
        return None
    name = prefix(group)
    rows = [
        [
            tag("bdi", n),
            *(
                (m / "summary" / "metrics").get(k).get(f).number(lambda v: f"{v:.3f}")
                for k in ("ece", "mce")
                for f in ("mean", "worst10")
            ),
        ]
        for n, m in methods
        if "metrics" in m.value["summary"]
    ]
    head = ["method", "ECE", "ECE, worst 10 %", "MCE", "MCE, worst 10 %"]
    note = (
        "How far a model's confidence is from how often it is right, on each participant's own "
        "test examples: on average over 15 bins of confidence (ECE), and in the worst of them "
        "(MCE). 0 is perfect; with few test examples both are large by chance."
    )
    return section(
        f"{name}-calibration",
        "Calibration",
        tag("p", note),
        table(f"{name}-calibration-table", "Calibration errors", head, rows) if rows else None,
        panels(*(_marks(f"{name}-ece-{i}", n, m) for i, (n, m) in enumerate(methods))),
    )


def _marks(name: str, method: str, place: Place) -> Html:
    """ECE against the number of test examples, on which it depends."""
    rows = [row for row in drawn(place) if known(row, "ece", "mce", "n_test")]
    panel = svg.Panel.of(
        [0.0, *(row.value["n_test"] for row in rows)],
        [row.value["ece"] for row in rows],
        height=260,
        zero_y=True,
    )
    panel.axes("test examples", "ECE")
    for row in rows:
        v = row.value
        said = f"{v['client']}: ECE {v['ece']:.3f}, MCE {v['mce']:.3f}, {v['n_test']} test examples"
        drawn_mark = sign("undecided", panel.x(v["n_test"]), panel.y(v["ece"]), 3.5)
        panel.add(svg.mark(said, row.pointer, drawn_mark))
    about = f"A mark for each of {len(rows)} participants: ECE against its test examples."
    return svg.figure(name, panel, f"ECE of each participant, {method}", about)
