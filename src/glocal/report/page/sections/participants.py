"""What the comparison says to one participant: the sentence, the models it could have, the rest."""

from __future__ import annotations

from glocal.report.page.markup import Html, Place, join, known, tag
from glocal.report.page.sections.common import (
    VERDICTS,
    Methods,
    badge,
    finished,
    gain,
    link,
    paragraphs,
    prefix,
    section,
    set_against_alone,
    table,
    unit,
)
from glocal.report.page.sections.forest import Line, forest, line
from glocal.report.units import Unit

HINT = "Choose a participant to see what this says to it alone, and to print that."


def participants(group: Place) -> Html | None:
    """An article for each participant that is listed, and a list to choose one from."""
    methods = finished(group)
    if not methods or not methods[0][1].value["clients"]:
        return None
    name = prefix(group)
    rows = methods[0][1] / "clients"
    options = [tag("option", str(row.value["client"])) for row in rows]
    chooser = tag(
        "p",
        tag("label", "Participant", for_=f"{name}-choose"),
        tag(
            "select",
            tag("option", "choose …", value=""),
            *options,
            id=f"{name}-choose",
            data_choose=True,
        ),
        tag("button", "Print this participant", type="button", data_print=True),
        class_="tools choose",
    )
    return section(
        f"{name}-participants",
        "For a participant" if len(rows.value) > 1 else "For one participant",
        chooser if len(rows.value) > 1 else None,
        tag("p", HINT, class_="hint") if len(rows.value) > 1 else None,
        *paragraphs(group.get("thinned")),
        _names(group) if len(rows.value) > 1 else None,
        *(article(group, k) for k in range(len(rows.value))),
    )


def _names(group: Place) -> Html | None:
    """Everybody's name under what is advised to it, or under its verdict; each leads to its part.

    The sign before a name is the verdict on what is advised.
    """
    advised = any("advised" in row for m in group.value["methods"].values() for row in m["clients"])
    under: dict[str, list[Html]] = {}
    for each in group / "participants":
        method, verdict = each.value["advised"], each.value["verdict"]
        if not advised:
            title = f"{verdict or 'no verdict'} with {method}"
        else:
            title = "stay alone" if method == "alone" else f"join with {method}"
        kind = VERDICTS[verdict][1] if verdict in VERDICTS else None
        said = f"{each.value['client']}: {verdict}" if kind else None
        name = link(each, class_=f"badge {kind}" if kind else None, aria_label=said)
        under.setdefault(title, []).append(tag("li", name))
    if not under:
        return None
    parts = [join(tag("dt", t), tag("dd", tag("ul", *names))) for t, names in under.items()]
    return tag("dl", *parts, class_="names")


def article(group: Place, k: int) -> Html:
    """Everything about the ``k``-th participant that is listed."""
    methods = finished(group)
    row = methods[0][1] / "clients" / k
    client = str(row.value["client"])
    said = _sentence(group, client)
    name = f"{prefix(group)}-participant-{k}"
    return tag(
        "article",
        tag("h3", tag("bdi", (row / "client").text()), id=f"{name}-heading"),
        said.text("p", class_="said") if said else None,
        tag("p", *_examples(row), class_="about"),
        _models(group, methods, k, name),
        _figure(group, k, name),
        id=name,
        class_="participant",
        data_participant=client,
        aria_labelledby=f"{name}-heading",
    )


def _sentence(group: Place, client: str) -> Place | None:
    for each in group / "participants":
        if each.value["client"] == client:
            return each / "sentence"
    return None


def _examples(row: Place) -> list[Html]:
    """How many examples a participant has."""
    words = {"n_train": "training", "n_val": "validation", "n_test": "test"}
    parts = [join((row / k).number(), f" {w} examples") for k, w in words.items() if known(row, k)]
    return [tag("span", part) for part in parts]


def _models(group: Place, methods: Methods, k: int, name: str) -> Html:
    """A row for each model that the participant could have."""
    first, how = methods[0][1] / "clients" / k, unit(group)
    rows: list[list[Html]] = []
    offered = set_against_alone(group)
    base = offered[0][1] / "clients" / k if offered else first
    for key, words in (
        ("best_local_value", "the best alone"),
        ("local_value", "same model, alone"),
    ):
        if known(base, key):
            rows.append([Html(words), (base / key).number(how.value), *[Html("–")] * 3])
    for method, place in methods:
        row = place / "clients" / k
        if place.value["baseline"]:
            continue
        rows.append(
            [
                tag("bdi", method),
                row.get("value").number(how.value),
                gain(row, how),
                badge(row),
                would_decide(row),
            ]
        )
        if known(row, "adapted_value"):
            rows.append(
                [
                    join(tag("bdi", method), ", adapted by ", (row / "adapted_by").text()),
                    (row / "adapted_value").number(how.value),
                    gain(row, how, [f"adapted_{x}" for x in ("estimate", "low", "high")]),
                    badge(row, "adapted_verdict"),
                    Html("–"),
                ]
            )
        if known(row, "epsilon"):
            rows[-1][0] = join(
                rows[-1][0], " (ε = ", (row / "epsilon").number(lambda e: f"{e:.3g}"), ")"
            )
    if known(base, "constant_value"):
        rows.append(
            [Html("a constant, no model"), (base / "constant_value").number(how.value)]
            + [Html("–")] * 3
        )
    head = ["model", f"{how.name}{_sign(how)}", "above alone (90 % interval)", "verdict"]
    return table(f"{name}-models", "The models it could have", [*head, "would decide"], rows)


def _sign(how: Unit) -> str:
    return " %" if how.heading.endswith("%") else " ×100" if how.scale == 100 else ""


def would_decide(row: Place) -> Html:
    """What it would take to decide an undecided verdict."""
    needs = row.get("needs")
    if not needs.value:
        return Html("–")
    ((what, _),) = needs.value.items()
    words = "test examples" if what == "examples" else "repeats"
    return join((needs / what).number(lambda n: f"{n:,}"), f" {words}")


def _figure(group: Place, k: int, name: str) -> Html | None:
    """The intervals of all methods, if there is more to see than in the table."""
    how, lines = unit(group), list[Line]()
    for method, place in set_against_alone(group):
        row = place / "clients" / k
        if known(row, "estimate", "low", "high"):
            lines.append(line(method, row, how))
        if known(row, "adapted_estimate", "adapted_low", "adapted_high"):
            lines.append(line(f"{method}, adapted", row, how, "adapted_"))
    if not lines:
        return None
    about = "With a 90 % interval; the table above has the same figures."
    title = "What it gains over being alone"
    return forest(f"{name}-gains", title, lines, how, about=about, keyed=False)
