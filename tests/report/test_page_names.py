"""Names are text, whatever they hold; and one participant's page names nobody else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from page_files import GAINS, NAMES, Page, comparison, usual

from conftest import Command
from glocal.report.page import alone, collect, render

ODD = (
    '<img src=x onerror="alert(1)">',
    "</script><script>alert(2)</script>",
    "=HYPERLINK(\"http://x\") & 'co'",
    "שיבא \u202e\u2066 right-to-left \x00\x1b[31m\n\t",
    "@" + "x" * 3000 + "\ud800",
)


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    methods = dict(zip(("<b>m</b>&\"'", "a/b~c</style>"), usual(ODD).values(), strict=True))
    return comparison(tmp_path / "<i>folder</i>", methods)


def test_names_are_text_everywhere(odd: Path) -> None:
    text = render(collect([odd]))
    text.encode()  # no halves of letters
    page = Page(text)
    assert not page.of("img")
    assert not page.of("i")
    assert not page.of("b")
    assert len(page.of("script")) == 2
    assert not set("\x00\x1b\u202e\u2066\ud800") & set(text)
    assert not any(n.startswith("on") for e in page.elements for n in e.attributes)
    shown = [a.attributes["data-participant"] for a in page.with_class("participant")]
    assert shown[:2] == list(ODD[:2])
    (group,) = page.data["groups"]
    assert list(group["methods"]) == ["<b>m</b>&\"'", "a/b~c</style>"]
    assert [r["client"] for r in group["methods"]["a/b~c</style>"]["clients"]] == shown
    for element in page.of("data"):  # names with slashes lead somewhere, too
        assert element.attributes["data-path"].startswith("/groups/0/")


def test_a_link_leads_to_its_participant(odd: Path) -> None:
    from urllib.parse import unquote

    page = Page(render(collect([odd])))
    links = [e.attributes["href"] for e in page.of("a")]
    linked = [unquote(h.partition("=")[2]) for h in links if h.startswith("#participant=")]
    there = [a.attributes["data-participant"] for a in page.with_class("participant")]
    assert linked[len(there) :] == there  # in the table; before it, under what is advised
    assert sorted(linked[: len(there)]) == sorted(there)
    assert all(re.fullmatch(r"#participant=[\w.~%-]*", h) for h in links if "participant=" in h)


@pytest.mark.parametrize("name", NAMES)
def test_one_participants_page_has_nothing_of_others(name: str, tmp_path: Path) -> None:
    methods = usual()
    for method in methods.values():
        method["summary"] |= {
            "values": {"accuracy": [[0.123456] * 5]},
            "pooling": {"why": f"Own test splits: {NAMES[0]} differs."},
            "diverged": {n: [1] for n in NAMES},
            "best_alone": dict.fromkeys(NAMES, 1),
            "attack": {"clients": list(NAMES)},
        }
    data = collect([comparison(tmp_path / "c", methods)])
    text = render(alone(data, name))
    others = [other for other in NAMES if other != name]
    for other in others:
        assert other not in text
        assert json.dumps(other)[1:-1] not in text
        assert other.encode() not in text.encode()
    assert "(chosen on its own data), with a 90 % interval" in text
    page = Page(text)
    assert [e.attributes["data-participant"] for e in page.with_class("participant")] == [name]
    rows = [r for m in page.data["groups"][0]["methods"].values() for r in m["clients"]]
    assert [row["client"] for row in rows] == [name, name]
    # Nor a number of theirs, nor a mean or a count that tells what they have.
    mine = NAMES.index(name)
    numbers = set(re.findall(r"-?\d+\.\d+", json.dumps(page.data)))
    for gains in GAINS.values():
        for k, gain in enumerate(gains):
            assert (str(gain) in numbers) == (k == mine)
    for figure in ("0.7423", "0.6217", "0.8842", "0.123456"):
        assert figure not in text


def test_the_command_writes_one_participants_page(tmp_path: Path, command: Command) -> None:
    comparison(tmp_path / "c", usual())
    done = command("report", "c", "--participant", "Köln", "--out", "k.html")
    assert done[:2] == (0, "Report: k.html\n")
    assert "Lübeck" not in Path("k.html").read_text(encoding="utf-8")
