"""Several folders side by side, and the table of a sweep with its curves over a setting."""

from __future__ import annotations

from glocal.evaluation.measures import SHARES
from glocal.report.page import svg
from glocal.report.page.markup import Html, Place, join, tag
from glocal.report.page.sections.common import (
    panels,
    paragraphs,
    prefix,
    section,
    table,
)
from glocal.report.tables import number
from glocal.report.units import Unit, unit_of


def together(root: Place) -> Html | None:
    """What several folders differ in, and whether their figures can be compared."""
    place = root.get("together")
    if not place.value:
        return None
    labels = [str(group["label"]) for group in root.value["groups"]]
    rows: list[list[Html]] = [
        [Html("folder"), *((group / "folder").text() for group in root / "groups")],
        [Html("the answer"), *((group / "answer").text() for group in root / "groups")],
        [Html("methods"), *(tag("span", ", ".join(g["methods"])) for g in root.value["groups"])],
    ]
    for name, values in (place / "differing").items():
        if name == "method":  # of a comparison, that of its first run
            continue
        rows.append([tag("span", name), *(value.text() for value in values)])
    warnings = [text.text("p", class_="notice") for text in place / "incomparable"]
    return section(
        "together",
        "Side by side",
        *warnings,
        table("together-table", "What differs", ["", *labels], rows, left=len(labels) + 1),
    )


def swept(group: Place) -> Html | None:
    """A row for each method at each combination, and which was chosen."""
    place = group.get("sweep")
    if not place.value:
        return None
    name, rows = prefix(group), place / "over_seeds"
    names = [n for n in place.value["varied"] if n != "seed"]
    how = _unit(place)
    head = ["method", *names, f"validation {how.heading}", f"mean {how.heading}", "worst 10 %"]
    cells = [
        [
            tag("bdi", (row / "method").text()),
            *(_setting(row / n) for n in names),
            _with_sd(row, "validation", how),
            _with_sd(row, "mean", how),
            row.get("worst10").number(how.value),
            row.get("benefit").number(how.difference),
            *(row.get(k).number(number) for k in ("better_off", "worse_off")),
            Html("yes" if row.value.get("chosen") else ""),
        ]
        for row in rows
    ]
    note = (
        "Validation data chooses the best of each method; the other figures are of test data. "
        "With several seeds, means over them ± their standard deviation."
    )
    return section(
        f"{name}-sweep",
        "The sweep",
        tag("p", note),
        table(
            f"{name}-sweep-table",
            "Every method at every combination",
            [*head, "vs alone", "better off", "worse off", "chosen"],
            cells,
            left=1 + len(names),
        ),
        panels(*(_curve(f"{name}-over-{i}", n, rows, how) for i, n in enumerate(names))),
        *paragraphs(group.get("thinned")),
    )


def _unit(place: Place) -> Unit:
    rows, metric = place.value["over_seeds"], place.value["metric"]
    about = {
        "metric": metric,
        "task": None if metric in SHARES else "numbers",
        "mean": next((row["mean"] for row in rows if row["mean"] is not None), None),
    }
    return unit_of(about)


def _setting(place: Place) -> Html:
    is_number = isinstance(place.value, int | float) and not isinstance(place.value, bool)
    return place.number(lambda v: f"{v:g}") if is_number else place.text()


def _with_sd(row: Place, name: str, how: Unit) -> Html:
    sd = row.get(f"{name}_sd")
    shown = row.get(name).number(how.value)
    return shown if sd.value is None else join(shown, " ± ", sd.number(how.value))


def _curve(name: str, setting: str, rows: Place, how: Unit) -> Html | None:
    """The mean over a setting that is a number, a line for each method; others where chosen."""
    there = [
        row
        for row in rows
        if isinstance(row.value[setting], int | float)
        and not isinstance(row.value[setting], bool)
        and row.value["mean"] is not None
    ]
    values = sorted({row.value[setting] for row in there})
    if len(values) < 2:
        return None
    methods = list(dict.fromkeys(row.value["method"] for row in there))[:14]
    places = {value: i for i, value in enumerate(values)}
    best: dict[tuple[str, float], Place] = {}
    sign = -1 if how.lower else 1
    for row in there:
        at = (row.value["method"], row.value[setting])
        score = row.value["validation"]
        if at not in best or (score or 0) * sign > (best[at].value["validation"] or 0) * sign:
            best[at] = row
    panel = svg.Panel.of(
        [float(i) for i in places.values()],
        [how.scale * row.value["mean"] for row in best.values()],
    )
    unit_sign = " (%)" if how.heading.endswith("%") else ""
    panel.axes(
        setting,
        f"mean {how.name}{unit_sign}",
        x_text=lambda i: svg.plain(values[int(i)]) if 0 <= i < len(values) else "",
        integers=True,
    )
    for i, method in enumerate(methods):
        points = [(v, best[method, v]) for v in values if (method, v) in best]
        panel.path([(places[v], how.scale * row.value["mean"]) for v, row in points], i)
        for v, row in points:
            at_x, at_y = panel.x(places[v]), panel.y(how.scale * row.value["mean"])
            chosen = ", chosen" if row.value.get("chosen") else ""
            tip = f"{method}, {setting} = {v:g}: {how.value(row.value['mean'])}{chosen}"
            drawn = [svg.shape(svg.series_shape(i), at_x, at_y, f"fill c{i % 7}", 4)]
            if chosen:
                drawn.append(svg.shape("circle", at_x, at_y, f"ring c{i % 7}", 8))
            panel.add(svg.mark(tip, row.pointer, *drawn))
    about = f"The mean over participants at {len(values)} values of {setting}."
    note = "Evenly spaced, whatever the values are; ringed: chosen on validation data."
    title = f"Mean {how.name} over {setting}"
    return svg.figure(name, panel, title, about, key=svg.series_key(methods), note=note)
