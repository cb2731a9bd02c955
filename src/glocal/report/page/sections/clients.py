"""Every participant: what it gains with each method, sorted, and a table of all."""

from __future__ import annotations

from glocal.report.page import svg
from glocal.report.page.markup import Html, Place, known, tag
from glocal.report.page.sections.common import (
    VERDICTS,
    badge,
    drawn,
    finished,
    gain,
    key,
    link,
    panels,
    paragraphs,
    prefix,
    section,
    set_against_alone,
    sign,
    table,
    unit,
    with_interval,
)
from glocal.report.page.sections.forest import forest, line
from glocal.report.tables import plural
from glocal.report.units import Unit


def clients(group: Place) -> Html | None:
    """The benefit of every participant as a figure for each method, and as a table."""
    if not finished(group):
        return None
    name, how, joined = prefix(group), unit(group), set_against_alone(group)
    figures = [_benefits(f"{name}-benefits-{i}", n, m, how) for i, (n, m) in enumerate(joined)]
    return section(
        f"{name}-clients",
        "Every participant",
        *paragraphs(group.get("thinned")),
        panels(*figures),
        *paragraphs((group / "words").get("participants")),
        _table(group, how),
    )


def _benefits(name: str, method: str, place: Place, how: Unit) -> Html | None:
    rows = sorted(with_interval(drawn(place)), key=lambda row: -row.value["estimate"])
    if not rows:
        return None
    without = len(drawn(place).value) - len(rows)
    note = f"{plural(without, 'participant')} without a value." if without else None
    counts = {w: place.value["summary"][w.replace(" ", "_")] for w in VERDICTS}
    said = ", ".join(f"{n} {word}" for word, n in counts.items() if n)
    return forest(
        name,
        f"What each participant gains with {method}",
        [line(str(row.value["client"]), row, how) for row in rows],
        how,
        about=f"Sorted by benefit, each with its 90 % interval: {said}.",
        note=note,
    )


def _table(group: Place, how: Unit) -> Html:
    """A row for each participant that is listed."""
    methods, joined = finished(group), set_against_alone(group)
    first = (joined or methods)[0][1]
    heading = f"{how.name}{' %' if how.heading.endswith('%') else ''}"
    head = ["participant", "train", "test"]
    alone = [k for k in ("best_local_value", "local_value") if _any(first, k)][:1]
    head += ["alone"] * len(alone)
    for method, _ in joined or methods:
        head += [
            f"{method}: {heading}",
            *([f"{method}: benefit", f"{method}: verdict"] if joined else []),
        ]
    rows = []
    for k, row in enumerate(first / "clients"):
        cells: list[Html] = [link(row)]
        cells += [row.get(n).number() for n in ("n_train", "n_test")]
        cells += [row.get(n).number(how.value) for n in alone]
        for _, place in joined or methods:
            own = place / "clients" / k
            cells.append(own.get("value").number(how.value))
            cells += [gain(own, how), badge(own)] if joined else []
        rows.append(cells)
    caption = "Participants and methods"
    return table(f"{prefix(group)}-clients-table", caption, head, rows)


def _any(method: Place, name: str) -> bool:
    return any(known(row, name) for row in method / "clients")


def against_alone(group: Place) -> Html | None:
    """Local against federated, and adapted against unadapted: a mark for each participant."""
    joined = set_against_alone(group)
    if not joined:
        return None
    name, how = prefix(group), unit(group)
    figures = []
    for i, (method, place) in enumerate(joined):
        best = any(known(row, "best_local_value") for row in drawn(place))
        alone = "best_local_value" if best else "local_value"
        figures.append(
            _scatter(
                f"{name}-alone-{i}",
                f"Alone and with {method}",
                drawn(place),
                (alone, "the best alone" if best else "alone"),
                ("value", f"with {method}"),
                "verdict",
                how,
            )
        )
        figures.append(
            _scatter(
                f"{name}-adapted-{i}",
                f"{method}, as received and adapted",
                drawn(place),
                ("value", "as received"),
                ("adapted_value", "adapted"),
                "adapted_verdict",
                how,
            )
        )
    there = panels(*figures)
    if there is None:
        return None
    better = "Below" if how.lower else "Above"
    note = (
        f"{better} the diagonal, the vertical axis does better. On test data, a mark for each "
        "participant; its colour and shape are its verdict against being alone."
    )
    return section(f"{name}-scatter", "Alone against together", tag("p", note), there)


def _scatter(
    name: str,
    title: str,
    rows: Place,
    x: tuple[str, str],
    y: tuple[str, str],
    verdict: str,
    how: Unit,
) -> Html | None:
    there = [row for row in rows if known(row, x[0], y[0])]
    if not there:
        return None
    pairs = [(how.scale * r.value[x[0]], how.scale * r.value[y[0]]) for r in there]
    xs, ys = zip(*pairs, strict=True)
    panel = svg.Panel.of(xs, ys, height=360, square=True)
    sign_of_unit = " (%)" if how.heading.endswith("%") else ""
    panel.axes(f"{x[1]}: {how.name}{sign_of_unit}", f"{y[1]}: {how.name}{sign_of_unit}")
    panel.diagonal()
    size = 4.5 if len(there) <= 60 else 3.0
    words = []
    for row, (a, b) in zip(there, pairs, strict=True):
        word = row.value.get(verdict)
        words.append(word)
        values = f"{how.value(row.value[x[0]])} {x[1]}, {how.value(row.value[y[0]])} {y[1]}"
        said = f"{row.value['client']}: {values}{f', {word}' if word else ''}"
        panel.add(svg.mark(said, row.pointer, sign(word, panel.x(a), panel.y(b), size)))
    above = sum((b < a) if how.lower else (b > a) for a, b in pairs)
    about = f"{above} of {len(pairs)} participants do better {y[1]} than {x[1]}."
    return svg.figure(name, panel, title, about, key=key([w for w in words if w]))
