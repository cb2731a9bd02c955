"""What a page draws and holds is what the files of the run say: positions, rows, summaries."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from page_files import Element, Page, at, comparison, usual

from glocal.report.page import collect, render


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return comparison(tmp_path_factory.mktemp("truth") / "c", usual())


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return Page(render(collect([folder])))


def inside(page: Page, figure: str, kind: str) -> list[Element]:
    """The elements of a class in a figure."""
    (svg,) = [e for e in page.of("svg") if e.attributes.get("aria-labelledby") == f"{figure}-title"]
    return [e for e in page.with_class(kind) if svg in e.above()]


def axis(page: Page, figure: str, anchor: str) -> tuple[float, float]:
    """The value at pixel 0 of an axis, and per pixel, as its ticks' texts say."""
    along, moved = ("x", 0.0) if anchor == "middle" else ("y", 4.0)
    ticks = [
        (float(e.attributes[along]) - moved, float(e.text.replace("\u2212", "-")))
        for e in inside(page, figure, "tick")
        if e.attributes["text-anchor"] == anchor and re.fullmatch(r"\u2212?[\d.]+", e.text)
    ]
    (a, first), (b, last) = ticks[0], ticks[-1]
    slope = (last - first) / (b - a)
    for pixel, value in ticks:  # evenly spaced
        assert abs(first + slope * (pixel - a) - value) <= abs(slope)
    return first - slope * a, slope


def places(mark: Element, page: Page) -> tuple[float, float]:
    """Where the marker of a mark is, in pixels."""
    for e in page.elements:
        if mark in e.above() and e.name == "circle":
            return float(e.attributes["cx"]), float(e.attributes["cy"])
        if mark in e.above() and "transform" in e.attributes:
            found = re.match(r"translate\((\S+) (\S+)\)", e.attributes["transform"])
            assert found
            return float(found[1]), float(found[2])
    raise AssertionError("a mark without a marker")


@pytest.mark.parametrize("i", [0, 1])
def test_benefits_stand_where_the_axis_says(page: Page, i: int) -> None:
    zero, slope = axis(page, f"a-benefits-{i}", "middle")
    marks = inside(page, f"a-benefits-{i}", "mark")
    assert len(marks) == 5
    for mark in marks:
        row = at(page.data, mark.attributes["data-path"])
        x, _ = places(mark, page)
        assert abs(zero + slope * x - 100 * row["estimate"]) <= slope


def test_scatter_plots_and_curves_too(page: Page) -> None:
    for figure, across, up in (
        ("a-alone-0", lambda r: 100 * r["local_value"], lambda r: 100 * r["value"]),
        ("a-metric", lambda p: p[0], lambda p: 100 * p[1]),
        ("a-loss", lambda p: p[0], lambda p: p[1]),
        ("a-gini-rounds", lambda p: p[0], lambda p: p[1]),
    ):
        (x0, x_slope), (y0, y_slope) = (axis(page, figure, a) for a in ("middle", "end"))
        for mark in inside(page, figure, "mark"):
            held = at(page.data, mark.attributes["data-path"])
            x, y = places(mark, page)
            assert abs(x0 + x_slope * x - across(held)) <= abs(x_slope)
            assert abs(y0 + y_slope * y - up(held)) <= abs(y_slope)


def test_the_data_of_a_page_is_that_of_the_result_file(page: Page, folder: Path) -> None:
    result = json.loads((folder / "result.json").read_text())
    methods = page.data["groups"][0]["methods"]
    assert list(methods) == list(result["methods"])
    for name, method in methods.items():
        held = result["methods"][name]
        assert {k: held["summary"][k] for k in method["summary"]} == method["summary"]
        assert len(method["clients"]) == len(held["clients"])
        for row, kept in zip(method["clients"], held["clients"], strict=True):
            assert {k: kept[k] for k in row} == row
            assert len(row) > 12
    said = {p["client"]: p["sentence"] for p in result["participants"]}
    assert {e.text for e in page.with_class("said")} == set(said.values())
