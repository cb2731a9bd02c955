"""``glocal study newcomers``, and who is away or slow on the command line and in files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import Command

pytestmark = pytest.mark.usefixtures("few_digits")

ALONE = "local(lr=0.1, max_epochs=2)"
SMALL = [
    "--clients",
    "4",
    "--every",
    "2",
    "--own-epochs",
    "1",
    "--rounds",
    "2",
    "--baseline",
    ALONE,
]


def test_tables_and_a_picture(command: Command) -> None:
    words = ["--wave", "rotate(90)", "--wave", "same", "--size", "1", "--repeats", "2"]
    files = ["--json", "a.json", "--picture", "a.png", "--until", "0.99"]
    code, out, err = command("study", "newcomers", "fedavg", "ditto", *words, *files, *SMALL)
    assert (code, err) == (0, "")
    assert out.count("rotate(90)") == 2
    assert "The goal of 99.0 % was not reached: fedavg in 2 of 2 repeats" in out
    assert Path("a.png").stat().st_size > 10_000
    found = json.loads(Path("a.json").read_text())
    assert found["arrivals"]["waves"] == ["rotate(90)", "same"]
    assert list(found["methods"]) == ["fedavg", "ditto"]


def test_bad_input_is_a_line(command: Command) -> None:
    code, out, err = command("study", "newcomers", "fedavg", "--wave", "melt", *SMALL)
    assert (code, out) == (2, "")
    assert err.startswith("glocal: unknown transform 'melt'")
    code, _, err = command("run", "afl", "--clients", "4", "--availability", "dropout(0.2)")
    assert code == 2
    assert err.count("\n") == 1
    assert "some would be away or not answer" in err
