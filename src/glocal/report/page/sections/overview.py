"""The first part: the answer in a sentence, what belongs beside it, and how many are what."""

from __future__ import annotations

from glocal.report.page import svg
from glocal.report.page.markup import Html, Place, join, tag
from glocal.report.page.sections.common import (
    VERDICTS,
    key,
    paragraphs,
    prefix,
    set_against_alone,
)

STATES = {"running": "still running", "stopped": "not finished"}


def overview(group: Place, *, several: bool) -> Html:
    """The answer of a group."""
    name = prefix(group)
    state = STATES.get(group.value["state"])
    label = tag("p", f"{group.value['label']}", class_="label") if several else None
    return tag(
        "section",
        label,
        about(group),
        tag("h2", "The answer", id=f"{name}-answer-heading", class_="quiet"),
        tag("p", state, class_="state") if state else None,
        (group / "answer").text("p", class_="answer"),
        *paragraphs(group / "caveats"),
        *[text.text("p", class_="notice") for text in group / "notes"],
        _bars(group),
        *paragraphs((group / "words").get("advice")),
        id=f"{name}-answer",
        class_="overview",
        aria_labelledby=f"{name}-answer-heading",
    )


def about(group: Place) -> Html:
    """Where the figures are from: the data, its partition, and the folder."""
    data = group / "data"
    line: list[Html] = [(data / k).text() for k in ("name", "partition") if data.value.get(k)]
    if data.value.get("clients"):
        line.append(join((data / "clients").number(), " participants"))
    if group.value["folder"]:
        line.append(tag("span", "folder ", (group / "folder").text("code")))
    return tag("p", *(tag("span", part) for part in line), class_="about")


def _bars(group: Place) -> Html | None:
    """How many participants have which verdict, a bar for each method."""
    methods = set_against_alone(group)
    if not methods:
        return None
    width, step = 440.0, 46.0
    scale = svg.Scale(0, 1, 0, width)
    panel = svg.Panel(scale, scale, step * len(methods) + 2, width)
    words = []
    for i, (name, method) in enumerate(methods):
        summary, y = method / "summary", step * i
        counts = {w: summary.value[w.replace(" ", "_")] for w in VERDICTS}
        total = max(1, sum(counts.values()))
        panel.add(svg.label(name, 0, y + 14, "row"))
        begin = 0.0
        for word, count in counts.items():
            if not count:
                continue
            words.append(word)
            wide = width * count / total
            place = summary / word.replace(" ", "_")
            kind = VERDICTS[word][1]
            box = tag(
                "rect",
                x=svg.px(begin + 0.5),
                y=svg.px(y + 20),
                width=svg.px(max(0.5, wide - 1)),
                height="20",
                rx="2",
                class_=f"count v-{kind}",
            )
            text = svg.label(str(count), begin + wide / 2, y + 34.5, "in", anchor="middle")
            said = f"{name}: {count} of {summary.value['clients']} {word}"
            shown = tag("g", text, class_=f"on v-{kind}") if wide > 14 else Html("")
            panel.add(svg.mark(said, place.pointer, box, shown))
            begin += wide
    about = "; ".join(
        f"{name}: " + ", ".join(f"{m.value['summary'][w.replace(' ', '_')]} {w}" for w in VERDICTS)
        for name, m in methods
    )
    return svg.figure(
        f"{prefix(group)}-verdicts",
        panel,
        "Participants by verdict",
        f"A bar for each method. {about}.",
        key=key(words),
    )
