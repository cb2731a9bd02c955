"""The page "Should my institution join?" shows a run that took place; its commands still hold."""

from __future__ import annotations

import csv
import importlib.util
import re
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import typer

from glocal.cli.app import app
from glocal.data.loading import load
from glocal.data.preprocessing.report import rendered

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "tutorials" / "should-my-institution-join.md").read_text(encoding="utf-8")
RECORD = (ROOT / "benchmarks" / "hospitals.txt").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def script() -> Any:
    file = ROOT / "benchmarks" / "hospitals.py"
    spec = importlib.util.spec_from_file_location("hospitals", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(script: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hospitals")
    script.write(folder / "hospitals.csv")
    script.write_new(folder / "new-patients.csv")
    return folder


def commands(text: str) -> list[str]:
    """The commands of a text, each in one line."""
    joined = re.sub(r"\\\n\s*", "", text)
    return [
        line.strip().removeprefix("$ ")
        for line in joined.splitlines()
        if re.match(r"\s*(\$ )?(glocal|python) ", line)
    ]


def blocks(text: str) -> list[str]:
    return re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)


def test_the_page_shows_the_commands_of_the_script(script: Any) -> None:
    shown = commands("\n".join(blocks(PAGE)))
    assert shown == commands(script.__doc__)
    assert shown == commands(RECORD)


def test_its_commands_are_understood() -> None:
    known = typer.main.get_command(app)
    for command in commands(RECORD):
        program, name, *words = shlex.split(command)
        if program == "glocal":
            assert isinstance(known, typer.core.TyperGroup)
            known.commands[name].make_context(name, words)


def test_what_it_shows_was_printed() -> None:
    record = RECORD.splitlines()
    for block in blocks(PAGE):
        for line in block.splitlines():
            assert line in record or line == "…", line


def test_the_column_report_is_that_of_today(folder: Path) -> None:
    fed = load(folder / "hospitals.csv", label="outcome", client="hospital")
    assert rendered(fed.columns) in RECORD


def test_the_file_is_as_bad_as_it_says(folder: Path, script: Any) -> None:
    with (folder / "hospitals.csv").open(encoding="cp1252", newline="") as file:
        rows = list(csv.DictReader(file, delimiter=";"))
    assert len(rows) == 6000
    assert Counter(row["hospital"] for row in rows) == script.SIZES
    assert sum(row["outcome"] == "yes" for row in rows) == round(0.08 * 6000)
    classes = Counter(row["hospital"] for row in rows if row["outcome"] == "yes")
    assert set(script.SIZES) - set(classes) == {"Füssen"}
    assert any(row["crp"] == "" for row in rows)
    assert all(row["weight"].endswith(" kg") or row["weight"] in ("", "NA") for row in rows)
