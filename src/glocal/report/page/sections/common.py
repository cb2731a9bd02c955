"""What sections share: the methods of a group, its unit, verdicts as signs, and sortable tables."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from glocal.report.page import svg
from glocal.report.page.markup import Child, Html, Place, join, known, tag
from glocal.report.units import Unit, unit_of

VERDICTS = {
    "better off": ("circle", "better"),
    "worse off": ("square", "worse"),
    "same": ("diamond", "same"),
    "undecided": ("circle", "undecided"),
}
"""The shape and the class of each verdict: what colour says, the shape says too."""

Methods = list[tuple[str, Place]]


def finished(group: Place) -> Methods:
    """The methods that have figures."""
    return [(n, m) for n, m in (group / "methods").items() if m.value["summary"] is not None]


def set_against_alone(group: Place) -> Methods:
    """The methods in which clients take part, and are set against being alone."""
    return [
        (name, method)
        for name, method in finished(group)
        if not method.value["baseline"] and method.value["summary"]["benefit"] is not None
    ]


def unit(group: Place) -> Unit:
    """How the metric that counts is written."""
    return unit_of(finished(group)[0][1].value["summary"])


def drawn(method: Place) -> Place:
    """The rows that figures are drawn from: all, or some of very many."""
    return method / "drawn" if "drawn" in method.value else method / "clients"


def with_interval(rows: Place) -> list[Place]:
    """The rows that have an estimate and its interval."""
    return [row for row in rows if known(row, "estimate", "low", "high")]


def prefix(group: Place) -> str:
    """What the names of a group's elements begin with."""
    return str(group.value["label"]).lower()


def sign(word: str | None, x: float = 0, y: float = 0, size: float = 4.5) -> Html:
    """A verdict's marker."""
    shape, kind = VERDICTS.get(word or "undecided", VERDICTS["undecided"])
    return svg.shape(shape, x, y, f"v-{kind}", size)


def badge(row: Place, name: str = "verdict") -> Html:
    """A verdict as a sign and a word."""
    place = row.get(name)
    # Where there is no estimate the verdict says nothing, and the terminal shows none either.
    if place.value is None or not known(row, name.replace("verdict", "estimate")):
        return Html("–")
    kind = VERDICTS.get(place.value, VERDICTS["undecided"])[1]
    return place.text(class_=f"badge {kind}")


def link(row: Place, **attributes: object) -> Html:
    """A participant's name that leads to its part of the page."""
    href = f"#participant={quote(str(row.value['client']), safe='')}"
    return tag("a", tag("bdi", (row / "client").text()), href=href, **attributes)


def key(words: Sequence[str]) -> list[tuple[Html, str]]:
    """The verdicts that there are, for a figure's key."""
    return [(sign(word), word) for word in VERDICTS if word in words]


def span(row: Place, unit: Unit, names: Sequence[str] = ("low", "high")) -> Html:
    """An interval: both ends marked."""
    low, high = (row.get(name) for name in names)
    if low.value is None or high.value is None:
        return Html("–")
    return join(low.number(unit.difference), " … ", high.number(unit.difference))


def gain(row: Place, unit: Unit, names: Sequence[str] = ("estimate", "low", "high")) -> Html:
    """``+3.1 (+0.8 … +5.2)``: an estimate and its interval."""
    middle = row.get(names[0])
    if middle.value is None:
        return Html("–")
    ends = span(row, unit, names[1:])
    return join(middle.number(unit.difference), *([] if ends == "–" else [" (", ends, ")"]))


def table(
    name: str, caption: str, head: Sequence[str], rows: Sequence[Sequence[Child]], *, left: int = 1
) -> Html:
    """A table that the script lets sort and save; its first column names a row.

    The first ``left`` columns are text, and so are verdicts.
    """
    kinds = [None if i < left or h.endswith("verdict") else "number" for i, h in enumerate(head)]

    def cell(i: int, child: Child) -> Html:
        return tag("td", child, class_=kinds[i]) if i else tag("th", child, scope="row")

    columns = [
        tag("th", text, scope="col", class_=kind) for text, kind in zip(head, kinds, strict=True)
    ]
    body = [tag("tr", *(cell(i, child) for i, child in enumerate(row))) for row in rows]
    return tag(
        "div",
        tag(
            "div",
            tag(
                "table",
                tag("caption", caption),
                tag("thead", tag("tr", *columns)),
                tag("tbody", *body),
            ),
            class_="scroll",
        ),
        class_="table",
        data_name=name,
    )


def section(name: str, title: str, *children: Child) -> Html:
    """A part of the page under a heading of its own."""
    return tag(
        "section",
        tag("h2", title, id=f"{name}-heading"),
        *children,
        id=name,
        aria_labelledby=f"{name}-heading",
    )


def paragraphs(texts: Place) -> list[Html]:
    """Sentences as the data has them, a paragraph each."""
    return [text.text("p") for text in texts] if texts.value else []


def panels(*figures: Html | None) -> Html | None:
    """Figures side by side."""
    there = [figure for figure in figures if figure is not None]
    return tag("div", *there, class_="panels") if there else None
