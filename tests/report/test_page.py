"""The page of a comparison: its answer, and every number in it, are those of the data."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from page_files import GAINS, NAMES, Element, Page, at, comparison, usual

from glocal.report.page import collect, render

SIZES = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}

ALLOWED = {"90", "10", "15", "0", "100", "3"}
"""Numbers that are words: 90 % intervals, worst 10 %, 15 bins, ×100, --repeats 3."""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    folder = comparison(tmp_path_factory.mktemp("page") / "c", usual())
    return Page(render(collect([folder])))


def is_written(text: str, value: float) -> bool:
    """Whether a text is a way to write a value: in its unit, in points, or short."""
    found = re.fullmatch(r"([+-]?[\d,]*\.?\d+)(?: ([kMGT]))?", text)
    assert found, text
    size = SIZES.get(found[2], 1.0)
    shown = float(found[1].replace(",", ""))
    digits = len(found[1].partition(".")[2])
    half = size * 0.500001 * 10.0**-digits
    if found[2]:  # three digits
        half = max(half, abs(value) * 0.005)
    return any(abs(size * shown - scale * value) <= half for scale in (1, 100))


def in_figure(element: Element) -> bool:
    return any(e.name == "svg" for e in element.above())


def test_every_marked_number_and_text_is_that_of_the_data(page: Page) -> None:
    numbers, texts = page.of("data"), 0
    for element in numbers:
        value = at(page.data, element.attributes["data-path"])
        assert json.loads(element.attributes["value"]) == value
        assert is_written(element.text, value), element.text
    for element in page.elements:
        marked = "data-path" in element.attributes and element.name not in ("data", "g")
        if marked:
            assert element.text == str(at(page.data, element.attributes["data-path"]))
            texts += 1
    assert len(numbers) > 100
    assert texts > 40


def test_marks_say_the_numbers_that_they_stand_for(page: Page) -> None:
    marks = page.with_class("mark")
    assert len(marks) > 40
    titles = {id(e.parent): e.text for e in page.of("title") if e.parent is not None}
    for mark in marks:
        held = json.dumps(at(page.data, mark.attributes["data-path"]))
        values = [float(v) for v in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", held)]
        if "/summary" in mark.attributes["data-path"]:
            summary = at(page.data, mark.attributes["data-path"].split("/summary")[0])["summary"]
            values += [summary["clients"], summary["params_up"] + summary["params_down"]]
        for shown in re.findall(r"[+-]?\d[\d,]*\.?\d*(?: [kMGT]\b)?", titles[id(mark)]):
            assert any(is_written(shown, value) for value in values), titles[id(mark)]


def test_no_digit_of_a_result_is_without_its_mark(page: Page) -> None:
    for element in page.elements:
        above = element.above()
        marked = any("data-path" in e.attributes for e in above)
        if marked or in_figure(element) or element.name in ("script", "style", "pre", "title"):
            continue
        found = set(re.findall(r"\d+", "".join(element.own)))
        assert found <= ALLOWED, "".join(element.own)


def test_the_answer_is_what_the_data_says(page: Page) -> None:
    (answer,) = page.with_class("answer")
    summary = page.data["groups"][0]["methods"]["fedavg"]["summary"]
    assert [summary[k] for k in ("better_off", "worse_off", "undecided", "clients")] == [2, 1, 2, 5]
    assert answer.text == (
        "With fedavg, better off than alone is shown for 2 of 5 participants, worse off for 1, "
        "2 cannot be told; all calls taken together, at least 2 gain."
    )


def test_the_method_for_all_is_the_one_answered_about(tmp_path: Path) -> None:
    methods = usual()
    methods["fedavg"]["summary"]["recommended"] = False
    methods["ditto"]["summary"] |= {"recommended": True, "at_least": 0}
    data = collect([comparison(tmp_path / "c", methods)])
    (group,) = data["groups"]
    assert group["answer"] == (
        "With ditto, better off than alone is shown for 3 of 5 participants, worse off for none, "
        "2 cannot be told."
    )
    methods["ditto"]["summary"] |= {"recommended": False}
    methods["fedavg"]["summary"]["at_least"] = 4
    data = collect([comparison(tmp_path / "d", methods)])
    assert data["groups"][0]["answer"].endswith("; at least 4 gain, whoever they be.")
    assert data["groups"][0]["caveats"][0].startswith("No method is advised for all")
    del methods["fedavg"]["summary"]["recommended"]  # it was not considered: it has no server, say
    data = collect([comparison(tmp_path / "e", methods)])
    assert data["groups"][0]["answer"].startswith("With ditto, ")


def test_clients_are_sorted_by_benefit_with_their_intervals(page: Page) -> None:
    def names(figure: str) -> list[str]:
        (svg,) = [e for e in page.of("svg") if e.attributes.get("aria-labelledby") == figure]
        marks = [e for e in page.with_class("mark") if svg in e.above()]
        return [at(page.data, m.attributes["data-path"])["client"] for m in marks]

    for i, gains in enumerate(GAINS.values()):
        expected = [n for _, n in sorted(zip(gains, NAMES, strict=True), reverse=True)]
        assert names(f"a-benefits-{i}-title") == expected


def test_it_is_accessible_as_far_as_a_parser_can_tell(page: Page) -> None:
    levels = [int(e.name[1]) for e in page.elements if re.fullmatch(r"h[1-6]", e.name)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    ids = [e.attributes["id"] for e in page.elements if "id" in e.attributes]
    assert len(ids) == len(set(ids))
    for element in page.elements:
        for name in ("aria-labelledby", "aria-describedby", "for"):
            assert set(element.attributes.get(name, "").split()) <= set(ids)
        href = element.attributes.get("href", "")
        if href.startswith("#") and not href.startswith("#participant="):
            assert href[1:] in ids
    for figure in page.with_class("figure"):
        inside = {e.name for e in page.elements if e.parent is figure}
        assert {"title", "desc"} <= inside
    assert {e.name for e in page.elements} >= {"header", "main", "nav", "footer", "article"}
    assert page.of("html")[0].attributes["lang"] == "en"


def test_nothing_is_loaded_and_nothing_else_runs(page: Page) -> None:
    (policy,) = [
        e.attributes["content"]
        for e in page.of("meta")
        if e.attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none'; img-src data:;")
    for name, kind in (("style", "style-src"), ("script", "script-src")):
        element = next(e for e in page.of(name) if "type" not in e.attributes)
        digest = base64.b64encode(hashlib.sha256(element.text.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy
    for element in page.elements:
        assert "style" not in element.attributes
        assert not any(name.startswith("on") for name in element.attributes)
        for name in ("src", "href", "srcset"):
            assert element.attributes.get(name, "#").startswith(("#", "data:image/"))


def test_a_live_page_leaves_the_policy_to_the_server(tmp_path: Path) -> None:
    data = collect([comparison(tmp_path / "c", usual())])
    live = Page(render(data, live=True))
    names = [e.attributes.get("name") for e in live.of("meta")]
    assert "glocal-live" in names
    assert not any("http-equiv" in e.attributes for e in live.of("meta"))
    plain = Page(render(data))
    assert [e.text for e in plain.of("main")] == [e.text for e in live.of("main")]


def test_the_same_folder_is_the_same_page(tmp_path: Path) -> None:
    folder = comparison(tmp_path / "c", usual())
    pages = {render(collect([folder])) for _ in range(2)}
    assert len(pages) == 1
    assert len(pages.pop().encode()) < 300_000
