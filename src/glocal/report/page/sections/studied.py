"""What studies add: how well clients do along λ, and who counts how much, round by round."""

from __future__ import annotations

from glocal.report.page import svg
from glocal.report.page.markup import Html, Place, tag
from glocal.report.page.sections.common import Methods, panels, paragraphs, prefix, section

ALONG = (("accuracy", "accuracy (%)", 100), ("loss", "loss", 1), ("ece", "ECE", 1))


def mixtures(group: Place) -> Html | None:
    """Accuracy, loss and calibration from the received model to the client's own."""
    found = group.get("studies").get("mixtures")
    if not found.value:
        return None
    name = prefix(group)
    curves = [(str(each.value["method"]), each) for each in found]
    note = (
        "Each participant has two models, the received one (λ = 0) and its own (λ = 1). The curves "
        "show the mean over participants of what lies between, on test data, which chooses "
        "nothing; behind them is the 90 % interval over repeats, where there are several."
    )
    figures = [
        _along(f"{name}-along-{key}", curves, key, y, scale, dashed=key == "accuracy")
        for key, y, scale in ALONG
    ]
    notes = paragraphs(group / "studies" / "notes")
    return section(f"{name}-along", "Between two models", tag("p", note), *notes, panels(*figures))


def _along(name: str, curves: Methods, key: str, y: str, scale: float, *, dashed: bool) -> Html:
    places = [(i, method, each / key) for i, (method, each) in enumerate(curves)]
    values = [p for *_, place in places for p in place.value]
    if dashed:
        values += [p[:2] for _, each in curves for p in each.value["validation"]]
    ends = [scale * v for p in values for v in p[1:] if v is not None]
    panel = svg.Panel.of([p[0] for p in values], ends, height=300)
    panel.axes("λ, the share of the own model", y)
    for i, _, place in places:
        band = [(p[0], scale * p[2], scale * p[3]) for p in place.value if None not in p]
        panel.band(band, i)
        panel.path([(p[0], scale * p[1]) for p in place.value], i)
        if dashed:
            chosen_on = curves[i][1].value["validation"]
            panel.path([(p[0], scale * p[1]) for p in chosen_on], i, dashed=True)
    for i, method, place in places:
        for k, (lam, mean, *_) in enumerate(place.value):
            drawn = svg.shape(
                svg.series_shape(i), panel.x(lam), panel.y(scale * mean), f"fill c{i % 7}", 3.5
            )
            tip = f"{method}, λ = {lam:g}: {_written(mean, scale)}"
            panel.add(svg.mark(tip, f"{place.pointer}/{k}", drawn))
    title = y.removesuffix(" (%)")
    about = "; ".join(
        f"{method}: {_written(p.value[0][1], scale)} at λ = 0, "
        f"{_written(p.value[-1][1], scale)} at λ = 1"
        for _, method, p in places
    )
    names = svg.series_key([method for method, _ in curves])
    note = "Dashed: on validation data." if dashed else None
    return svg.figure(name, panel, f"Mean {title} along λ", f"{about}.", key=names, note=note)


def _written(value: float, scale: float) -> str:
    return f"{100 * value:.1f} %" if scale == 100 else f"{value:.3g}"


def weights(group: Place) -> Html | None:
    """A line for each participant: what it counts for in the aggregation, by round."""
    found = group.get("studies").get("weights")
    if not found.value:
        return None
    name = prefix(group)
    note = (
        "What each participant counts for when the server aggregates, in the order of rounds: a "
        "line each, which says whose it is when it is pointed at. Black: everybody the same."
    )
    figures = [_lines(f"{name}-weights-{i}", each) for i, each in enumerate(found)]
    notes = paragraphs(group / "studies" / "notes")
    title = "Who counts how much"
    return section(f"{name}-weights", title, tag("p", note), *notes, panels(*figures))


def _lines(name: str, study: Place) -> Html:
    rounds, method, each = study.value["rounds"], str(study.value["method"]), study / "each"
    alike = 100 / study.value["clients"]
    shares = [100 * w for row in each.value for w in row["weights"]]
    panel = svg.Panel.of(rounds, [*shares, alike], height=300, zero_y=True)
    panel.axes("round", "weight (%)", integers=True)
    panel.add(svg.line((panel.x.begin, panel.y(alike)), (panel.x.end, panel.y(alike)), "zero"))
    for row in each:
        held = row.value["weights"]
        points = [(panel.x(t), panel.y(100 * w)) for t, w in zip(rounds, held, strict=True)]
        path = "M" + "L".join(f"{svg.px(x)} {svg.px(y)}" for x, y in points)
        tip = f"{row.value['client']}: {100 * held[0]:.1f} % at first, {100 * held[-1]:.1f} % last"
        panel.add(svg.mark(tip, row.pointer, tag("path", d=path, class_="thin")))
    first, last = each.value[0], each.value[-1]
    about = (
        f"In the last round {first['client']} counts most, {100 * first['weights'][-1]:.1f} %, and "
        f"{last['client']} least, {100 * last['weights'][-1]:.1f} %."
    )
    drawn, clients = len(each.value), study.value["clients"]
    some = f"{drawn} of {clients} participants are drawn." if drawn < clients else None
    return svg.figure(name, panel, f"Weights with {method}", about, note=some)
