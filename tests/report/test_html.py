"""Tables as HTML: what the command prints, escaped, in a notebook."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest
import torch

import glocal
from comparing import compared
from glocal.report import comparison
from glocal.report.tables import html

SCRIPT = "<script>alert('1')</script>"


class Read(HTMLParser):
    """The tags of a text, and the cells of its rows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.rows: list[list[str]] = []
        self.below: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "p":
            self.below.append("")

    def handle_data(self, data: str) -> None:
        if self.below:
            self.below[-1] += data
        elif self.rows and self.rows[-1]:
            self.rows[-1][-1] += data.strip("\n")


def test_cells_are_escaped_aligned_and_coloured() -> None:
    text = html(["a & b", "n"], [[SCRIPT, ("1\x1b", "bold red")]], "1 < 2", left=1)
    read = Read(text)
    assert read.tags == {"table", "thead", "tbody", "tr", "th", "td", "p"}
    assert read.rows == [["a & b", "n"], [SCRIPT, "1�"]]
    assert read.below == ["1 < 2"]
    assert '<td style="text-align: left">&lt;script&gt;' in text
    assert '<td style="text-align: right; font-weight: bold; color: red">1' in text


@pytest.fixture(scope="module")
def both() -> Any:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(60, 3, generator=draw)
    names = [SCRIPT if i % 2 else "b" for i in range(60)]
    fed = glocal.federation(x, (x[:, 0] > 0).long(), clients=names)
    given = {"model": "logistic", "rounds": 1, "progress": False}
    methods = ["fedavg", "fedprox"]
    return compared(methods, fed, **given, baseline="local(lr=0.1)", against="fedavg")


def cells(line: str) -> list[str]:
    """What a table in a pipe has two spaces or more between."""
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_a_comparison_is_the_table_that_the_command_prints(
    both: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    comparison.show_comparison(both, "fedavg")
    printed = capsys.readouterr().out
    read = Read(both._repr_html_())
    head, *rows = [cells(line) for line in printed.strip().split("\n\n")[0].split("\n")]
    assert read.rows == [head, *rows]
    assert [row[0] for row in rows] == ["fedavg", "fedprox"]
    assert head[-1] == "vs fedavg"
    assert " ".join(read.below[0].split()) in " ".join(printed.split())


def test_a_run_is_its_clients(both: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run = both["fedavg"]
    comparison.show_clients(run)
    text = run._repr_html_()
    read = Read(text)
    assert "<script" not in text
    assert {row[0] for row in read.rows[1:]} == {SCRIPT, "b"}
    lines = [cells(line) for line in capsys.readouterr().out.strip().split("\n")]
    shown = [[cell for cell in row if cell] for row in read.rows]
    assert shown == lines
    assert read.below[0].startswith("Run fedavg: mean accuracy")
