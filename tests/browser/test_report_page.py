"""The report in a browser: it opens without a network, and what it offers works."""

from __future__ import annotations

import csv
import io
import json
import struct
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from browser.chromium import PHONE, Opened
from browser.results import EVIL

pytestmark = pytest.mark.browser

Open = Callable[..., Opened]


def table_of_all(page: Any) -> Any:
    """The table with a row for each participant."""
    return page.locator("#a-clients .table")


def saved(page: Any, button: Any) -> tuple[str, bytes]:
    """The name and the content of the file that a button saves."""
    with page.expect_download() as download:
        button.click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


@pytest.mark.parametrize("report", ["three", "many"])
def test_it_opens_from_a_file_and_draws_everything(
    open_page: Open, report: str, request: pytest.FixtureRequest
) -> None:
    file = request.getfixturevalue(report)
    opened = open_page(file)
    page = opened.page
    assert opened.requests == [file.as_uri()]
    assert "better off than alone" in page.locator(".answer").first.inner_text()
    figures = page.locator("svg.figure:visible")
    assert figures.count() >= 5
    for i in range(figures.count()):
        box = figures.nth(i).bounding_box()
        assert box["width"] > 100
        assert box["height"] > 20
        assert figures.nth(i).locator("path, circle, rect, line").count() > 0


def test_every_number_in_the_browser_is_that_of_the_result_file(
    open_page: Open, three: Path, made: Path
) -> None:
    result = json.loads((made / "three" / "result.json").read_text())
    shown = open_page(three).page.evaluate(
        "[...document.querySelectorAll('main data')].map(e => [e.dataset.path, e.value])"
    )
    checked = 0
    for pointer, value in shown:
        kind, _, rest = pointer.removeprefix("/groups/0/").partition("/")
        if kind == "methods" and "/curves/" not in rest:
            held: Any = result["methods"]
            for step in rest.split("/"):
                held = held[int(step)] if isinstance(held, list) else held[step]
            assert json.loads(value) == held, pointer
            checked += 1
    assert checked > 300


def test_a_table_is_sorted_by_mouse_and_by_keys(open_page: Open, three: Path) -> None:
    page = open_page(three).page
    table = table_of_all(page)
    head = table.locator("thead th").nth(1)  # numbers: the largest first
    column = table.locator("tbody tr td:nth-child(2)")

    def numbers() -> list[float]:
        return [float(text.replace(",", "")) for text in column.all_inner_texts()]

    unsorted = numbers()
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert numbers() == sorted(unsorted, reverse=True)
    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert numbers() == sorted(unsorted)
    other = table.locator("thead th").first.locator("button")
    other.focus()
    page.keyboard.press("Space")
    assert head.get_attribute("aria-sort") is None
    assert table.locator("th[aria-sort]").count() == 1


def test_a_mark_says_what_it_is_when_pointed_at_and_when_focused(
    open_page: Open, three: Path
) -> None:
    page = open_page(three).page
    marks = page.locator("svg.figure .mark:visible")
    tip = page.locator("#tip")
    marks.first.hover()
    assert tip.inner_text() == marks.first.get_attribute("aria-label")
    page.mouse.move(1, 1)
    assert tip.count() == 0
    marks.first.focus()
    assert tip.inner_text() == marks.first.get_attribute("aria-label")
    page.keyboard.press("ArrowRight")
    second = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert tip.inner_text() == second != marks.first.get_attribute("aria-label")
    page.keyboard.press("Escape")
    assert tip.count() == 0


def test_a_participant_is_chosen_and_has_an_address(open_page: Open, many: Path) -> None:
    page = open_page(many).page
    assert page.locator(".participant:visible").count() == 0
    choice = page.locator("select[data-choose]").first
    name = choice.locator("option").nth(2).inner_text()
    choice.select_option(label=name)
    assert page.locator(".participant:visible h3").all_inner_texts() == [name]
    address = page.url
    assert address.endswith(f"#participant={name}")
    again = open_page(address).page
    assert again.locator(".participant:visible h3").all_inner_texts() == [name]
    assert again.locator("select[data-choose]").first.input_value() == name
    assert again.evaluate("document.activeElement.textContent") == name


def test_the_theme_is_switched_and_remembered(open_page: Open, three: Path) -> None:
    page = open_page(three).page

    def ground() -> str:
        colour: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return colour

    light = ground()
    page.get_by_role("button", name="dark").click()
    dark = ground()
    assert dark != light
    assert page.get_by_role("button", name="dark").get_attribute("aria-pressed") == "true"
    page.reload()
    assert ground() == dark
    page.get_by_role("button", name="auto").click()
    assert ground() == light
    page.emulate_media(color_scheme="dark")
    assert ground() == dark


def test_print_has_every_participant_and_no_buttons(open_page: Open, three: Path) -> None:
    page = open_page(three).page
    page.get_by_role("button", name="dark").click()
    page.emulate_media(media="print")
    assert page.locator("button:visible").count() == page.locator("thead button:visible").count()
    assert page.locator("nav:visible, select:visible").count() == 0
    assert page.locator(".participant:visible").count() == 8
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_one_participant_is_printed_without_the_others(open_page: Open, three: Path) -> None:
    page = open_page(three).page
    names = page.locator("select[data-choose] option").all_inner_texts()[1:]
    chosen = names[3]
    page.locator(f".names a[href='#participant={chosen}']").click()
    page.evaluate("window.print = () => {}")
    page.get_by_role("button", name="Print this participant").click()
    page.emulate_media(media="print")
    assert page.locator(".participant:visible h3").all_inner_texts() == [chosen]
    assert page.locator("main h2:visible").all_inner_texts() == ["For a participant"]
    shown = page.locator("main [data-path$='/client']:visible").all_inner_texts()
    assert shown == [chosen]


def test_a_table_is_saved_as_csv(open_page: Open, three: Path) -> None:
    page = open_page(three).page
    table = table_of_all(page)
    name, content = saved(page, table.locator("[data-save=csv]"))
    assert name.endswith(".csv")
    rows = list(csv.reader(io.StringIO(content.decode("utf-8-sig"))))
    heads = table.locator("thead th").all_inner_texts()
    assert [name for name in rows[0] if name in heads] == heads  # an interval's ends are columns
    assert len(rows) == 9
    assert {len(row) for row in rows} == {len(rows[0])}


def test_a_figure_is_saved_as_svg_and_png(open_page: Open, three: Path) -> None:
    page = open_page(three).page
    figure = page.locator("figure[data-name]:visible").first
    name, content = saved(page, figure.locator("[data-save=svg]"))
    assert name.endswith(".svg")
    drawn = ET.fromstring(content)
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
    assert "var(" not in content.decode()
    name, content = saved(page, figure.locator("[data-save=png]"))
    assert name.endswith(".png")
    wide, high = struct.unpack(">II", content[16:24])
    assert wide == 2 * float(drawn.get("width") or 0)
    assert high > 20


@pytest.mark.parametrize("report", ["three", "many", "evil"])
def test_a_phone_does_not_scroll_the_page_sideways(
    open_page: Open, report: str, request: pytest.FixtureRequest
) -> None:
    opened = open_page(request.getfixturevalue(report), viewport=PHONE)
    assert not opened.scrolls_sideways()


def test_malicious_names_are_text(open_page: Open, evil: Path) -> None:
    opened = open_page(evil)
    page = opened.page
    names = page.locator("select[data-choose] option").all_inner_texts()[1:]
    assert len(names) == len(EVIL)
    assert names[0] == EVIL[0]
    assert page.locator("img, iframe, object, embed").count() == 0
    assert page.locator("script").count() == 2
    for name in names:
        page.locator("select[data-choose]").first.select_option(label=name)
    marks = page.locator(".mark:visible")
    for i in range(min(20, marks.count())):
        marks.nth(i).focus()
    _, content = saved(page, table_of_all(page).locator("[data-save=csv]"))
    assert "\n=HYPERLINK" not in content.decode("utf-8-sig")
    assert opened.requests == [evil.as_uri()]


def test_it_can_be_read_without_its_script(open_page: Open, three: Path) -> None:
    page = open_page(three, java_script_enabled=False).page
    assert page.locator(".participant:visible").count() == 8
    assert page.locator("svg.figure:visible").count() >= 5
