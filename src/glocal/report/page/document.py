"""The page: one HTML file that needs nothing else; its style, script and data are in it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from importlib import resources
from typing import Any

from glocal.core.errors import GlocalError
from glocal.report.page.markup import Html, Place, as_script, tag
from glocal.report.page.sections import (
    calibration,
    clients,
    cost,
    fairness,
    learning,
    methods,
    others,
    overview,
    participants,
    partition,
    studied,
    sweeps,
)
from glocal.report.page.thinning import ROOM, thinned

SECTIONS = (
    participants.participants,
    methods.methods,
    clients.clients,
    clients.against_alone,
    others.adaptation,
    learning.learning,
    cost.cost,
    fairness.fairness,
    studied.weights,
    studied.mixtures,
    calibration.calibration,
    others.privacy,
    partition.partition,
    others.synthetic,
    sweeps.swept,
    others.again,
)
"""After the answer, in this order."""


MOST = 3_000_000
"""Bytes of a page."""


def render(data: Mapping[str, Any], *, live: bool = False) -> str:
    """The page of what :func:`~glocal.report.page.reading.collect` found.

    Args:
        data: as collected, or one participant's of it.
        live: whether a server shows it while runs grow. It then says so in a ``meta`` element, and
            leaves the content security policy to the server's header (:func:`policy`).
    """
    room = ROOM
    while len((page := _page(thinned(data, room), live=live)).encode()) > MOST and room > 100_000:
        room = room * 2 // 3
    return page


def _page(data: Mapping[str, Any], *, live: bool) -> str:
    """The page of all of this data."""
    try:
        content = main(data)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, GlocalError):
            raise
        folders = ", ".join(str(group.get("folder")) for group in data["groups"])
        raise GlocalError(
            f"the files in {folders} do not fit together ({type(error).__name__}: {error}): train "
            "anew into another folder."
        ) from error
    rules = "; ".join(f"{name} {value}" for name, value in policy().items())
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        None if live else tag("meta", http_equiv="Content-Security-Policy", content=rules),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="generator", content=f"glocal {data['glocal']}"),
        tag("meta", name="glocal-live", content="1") if live else None,
        tag("title", _title(data)),
        tag("style", asset("style.css")),
    )
    made_by = (Place(data) / "glocal").text()
    last = ", kept up to date." if live else ". This page loads nothing and sends nothing."
    body = tag(
        "body",
        tag("a", "Skip to the answer", href="#main", class_="skip"),
        header("Better off than alone?"),
        content,
        tag("footer", tag("p", "Made by glocal ", made_by, last)),
        tag("p", id="said", class_="quiet", role="status", aria_live="polite"),
        tag("script", as_script(data), type="application/json", id="data"),
        tag("script", asset("script.js")),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def main(data: Mapping[str, Any]) -> Html:
    """The ``main`` element: all that depends on the data."""
    root = Place(data)
    several = len(data["groups"]) > 1
    parts: list[Html | None] = [sweeps.together(root)]
    for group in root / "groups":
        own = "participant" in data
        wanted = (participants.participants, others.meaning) if own else SECTIONS
        there = [part for section in wanted if (part := section(group)) is not None]
        parts.append(
            tag(
                "div",
                overview.about(group) if own else overview.overview(group, several=several),
                None if own else _contents(there, str(group.value["label"])),
                *there[:1],
                None if own or len(there) < 2 else tag("p", "For the organiser", class_="part"),
                *there[1:],
                class_="group",
            )
        )
    return tag("main", *parts, id="main", tabindex="-1")


def asset(name: str) -> Html:
    """A file of the package that goes into the page as it is."""
    return Html((resources.files("glocal.report.page") / name).read_text(encoding="utf-8"))


def policy() -> dict[str, str]:
    """The content security policy: nothing is loaded, and no other style or script counts."""

    def digest(name: str) -> str:
        found = hashlib.sha256(asset(name).encode()).digest()
        return f"'sha256-{base64.b64encode(found).decode()}'"

    return {
        "default-src": "'none'",
        "img-src": "data:",
        "style-src": digest("style.css"),
        "script-src": digest("script.js"),
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def _title(data: Mapping[str, Any]) -> str:
    names = list(dict.fromkeys(str(group["data"]["name"]) for group in data["groups"]))
    whom = f"{data['participant']}: " if "participant" in data else ""
    return f"{whom}who is better off than alone? {', '.join(names)}"


def header(title: str) -> Html:
    """The name of a page, and the switch of its theme."""
    themes = [
        tag(
            "button",
            word,
            type="button",
            data_theme_choice=word,
            aria_pressed="true" if word == "auto" else "false",
        )
        for word in ("auto", "light", "dark")
    ]
    return tag(
        "header",
        tag("h1", title),
        tag("div", *themes, role="group", aria_label="Theme", class_="tools theme"),
    )


def _contents(sections: list[Html], label: str) -> Html:
    """Links to the sections that there are."""
    import re

    links = []
    for section in sections:
        found = re.match(r'<section id="([^"]*)"[^>]*><h2[^>]*>([^<]*)</h2>', section)
        if found:
            links.append(tag("li", tag("a", Html(found[2]), href=f"#{found[1]}")))
    return tag("nav", tag("ul", *links), aria_label=f"Sections of {label}")
