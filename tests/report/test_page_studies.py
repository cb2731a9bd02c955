"""What studies add to a page: weights over time and curves along λ, in their files' numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from page_files import Page, at, comparison, usual

from conftest import Command
from glocal.report.page import alone, collect, render, with_studies
from glocal.report.page.study_files import MOST

ABOUT = {"data": "h.csv", "clients": 5, "partition": "own ids"}


def mixture(**more: Any) -> dict[str, Any]:
    def points(base: float) -> list[dict[str, Any]]:
        return [{"mean": base + k, "low": None, "high": None} for k in (0.0, 0.0312, 0.0107)]

    names = {"accuracy": 0.7141, "loss": 0.6217, "ece": 0.1173}
    curves = {split: {k: points(v) for k, v in names.items()} for split in ("validation", "test")}
    about = {"method": "apfl", "rounds": 3, "repeats": 1, "data": {**ABOUT, **more}}
    return {"mixtures": [{**about, "grid": [0, 0.5, 1], **curves}]}


def weights(clients: int = 3, rounds: int = 4, name: str = "<b>{}</b>") -> dict[str, Any]:
    total = sum(range(1, clients + 1))
    each = [[(k + 1) / total for k in range(clients)] for _ in range(rounds)]
    names = [name.format(k) for k in range(clients)]
    about = {"method": "term", "data": {**ABOUT}, "clients": clients, "names": names}
    return {"weights": [{**about, "weights": each}]}


def written(folder: Path, name: str, found: dict[str, Any]) -> Path:
    file = folder / name
    file.write_text(json.dumps(found))
    return file


@pytest.fixture
def data(tmp_path: Path) -> dict[str, Any]:
    return collect([comparison(tmp_path / "c", usual())])


def test_both_have_a_section_and_their_marks_say_the_files_numbers(
    data: dict[str, Any], tmp_path: Path
) -> None:
    files = [written(tmp_path, "m.json", mixture()), written(tmp_path, "w.json", weights())]
    page = Page(render(with_studies(data, files)))
    titles = [e.text for e in page.of("h2")]
    assert titles[titles.index("How evenly") + 1 :][:2] == [
        "Who counts how much",
        "Between two models",
    ]
    assert not page.of("b")
    tips = {
        e.parent.attributes["data-path"]: e.text
        for e in page.of("title")
        if e.parent and "/studies/" in e.parent.attributes.get("data-path", "")
    }
    assert len(tips) == 3 * 3 + 3
    for pointer, tip in tips.items():
        held = json.dumps(at(page.data, pointer))
        values = [float(v) for v in re.findall(r"\d+\.?\d*(?:e-?\d+)?", held)]
        for shown in re.findall(r"\d+\.?\d*", tip.replace("<b>", "").replace("</b>", "")):
            near = [abs(float(shown) - s * v) for v in values for s in (1, 100)]
            assert min(near) <= 0.0501, tip
    assert tips["/groups/0/studies/mixtures/0/accuracy/1"] == "apfl, λ = 0.5: 74.5 %"
    assert tips["/groups/0/studies/weights/0/each/0"] == "<b>2</b>: 50.0 % at first, 50.0 % last"
    assert not page.with_class("notice")


def test_of_very_many_some_are_drawn_and_the_page_says_so(
    data: dict[str, Any], tmp_path: Path
) -> None:
    file = written(tmp_path, "w.json", weights(1000, 500))
    text = render(with_studies(data, [file]))
    assert len(text.encode()) < 1_000_000
    page = Page(text)
    assert len(page.data["groups"][0]["studies"]["weights"][0]["each"]) == MOST
    assert any(f"{MOST} of 1000 participants are drawn." in e.text for e in page.of("figcaption"))


def test_a_study_of_another_federation_is_called_so(data: dict[str, Any], tmp_path: Path) -> None:
    file = written(tmp_path, "m.json", mixture(clients=9))
    page = Page(render(with_studies(data, [file])))
    assert any("another federation: clients differ" in p.text for p in page.of("p"))


def test_one_participants_page_has_nothing_of_studies(data: dict[str, Any], tmp_path: Path) -> None:
    file = written(tmp_path, "w.json", weights(name="other-{}"))
    assert "other-" not in render(alone(with_studies(data, [file]), "Köln"))


def test_what_is_no_study_is_refused_in_a_sentence(tmp_path: Path, command: Command) -> None:
    comparison(tmp_path / "c", usual())
    for content in ("{", "[]", "{}", '{"weights": [{}]}', '{"mixtures": 3}', '{"decisions": []}'):
        (tmp_path / "s.json").write_text(content)
        code, out, err = command("report", "c", "--study", "s.json")
        assert (code, out, err.count("\n")) == (2, "", 1), content
        assert "--study s.json" in err
    code, _, err = command("report", "c", "--study", "nowhere.json")
    assert code == 2
    assert "--study nowhere.json cannot be read" in err
    (tmp_path / "s.json").write_text(json.dumps(mixture()))
    assert command("report", "c", "--study", "s.json")[0] == 0
    assert "Between two models" in (tmp_path / "c" / "report.html").read_text(encoding="utf-8")
