"""Experiments from files and from options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from glocal.cli.value_lists import lists
from glocal.core.errors import GlocalError

pytestmark = pytest.mark.usefixtures("few_digits")

FILE = """
methods = ["fedavg", "fedprox"]
data = "digits"
clients = 3
rounds = 2
repeats = 1
baseline = "none"
model = "mlp(8)"
tune = false
"""


def test_values_of_an_option() -> None:
    found = lists(["lr=0.03, 1", "model=mlp,mlp(20, 10)", "poisson=true,false"], "--over")
    assert found == {"lr": [0.03, 1], "model": ["mlp", "mlp(20, 10)"], "poisson": [True, False]}
    for text in (["lr"], ["=1"], ["lr=1", "lr=2"]):
        with pytest.raises(GlocalError, match="cannot be read"):
            lists(text, "--over")


def test_a_comparison_from_a_file(tmp_path: Path, command: Any) -> None:
    file, out = tmp_path / "two.toml", tmp_path / "out.json"
    file.write_text(FILE + 'against = "fedavg"\n')
    where = ("--json", out, "--out", tmp_path / "a")
    code, _, said = command("compare", file, "--rounds", 1, "--baseline", "none", *where)
    assert (code, said) == (0, "")
    methods = json.loads(out.read_text())["methods"]
    assert list(methods) == ["fedavg", "fedprox"]
    assert methods["fedavg"]["summary"]["rounds"] == 1  # options win
    assert "against" in methods["fedprox"]["summary"]
    # What a comparison writes of itself is such a file.
    again = tmp_path / "again.json"
    code, _, _ = command(
        *("compare", tmp_path / "a" / "comparison.toml", "--baseline", "none"),
        *("--json", again, "--out", tmp_path / "b"),
    )
    assert code == 0
    assert again.read_bytes() == out.read_bytes()


def test_a_sweep_from_a_file_and_from_options(tmp_path: Path, command: Any) -> None:
    file = tmp_path / "rates.toml"
    file.write_text(FILE.replace(', "fedprox"', "") + "[sweep]\nlr = [0.05, 0.2]\n")
    code, out, _ = command("sweep", file, "--baseline", "none", "--out", tmp_path / "a")
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines() if line.startswith("fedavg")] == [
        ["fedavg", "0.05"],
        ["fedavg", "0.2"],
    ]
    options = ["--clients", 3, "--rounds", 2, "--baseline", "none", "--model", "mlp(8)"]
    options += ["--over", "lr=0.05,0.2"]
    code, _, _ = command("sweep", "fedavg", *options, "--out", tmp_path / "b")
    assert code == 0
    table = (tmp_path / "a" / "results.csv").read_bytes()
    assert table == (tmp_path / "b" / "results.csv").read_bytes()
    code, again, _ = command("resume", tmp_path / "a")
    assert code == 0
    assert again.splitlines()[1:4] == out.splitlines()[1:4]
    code, _, said = command("compare", file)
    assert code == 2
    assert "describes a sweep" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rounds = 1", "names no methods"),
        ('methods = "fedavg"', "names no methods"),
        ('methods = ["fedavg"]\nround = 1', "round"),
        ('methods = ["fedavg"]\nrounds = "1"', "rounds must be"),
        ('methods = ["fedavg"]\nsweep = 3', "sweep is a table"),
        ('methods = ["fedavg"]\nsettings = 3', "settings is a table"),
        ('methods = ["fedavg"]\ngoal = "x"', "goal must be a number"),
        ('methods = ["fedavg"]\nchoose = 1', "choose is true or false"),
        ('methods = ["fedavg"]\nagainst = "ditto"', "not among the methods"),
        ("methods = [", "not valid TOML"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, command: Any, text: str, said: str) -> None:
    file = tmp_path / "a.toml"
    file.write_text(text)
    code, out, error = command("compare", file)
    assert (code, out) == (2, "")
    assert said in error
    assert error.count("\n") == 1


def test_nothing_to_sweep_over(command: Any) -> None:
    code, _, error = command("sweep", "fedavg")
    assert code == 2
    assert "nothing to sweep over" in error


def test_files_are_given_one_at_a_time(command: Any) -> None:
    for words in (("compare", "a.toml", "b.toml"), ("sweep", "fedavg", "b.toml")):
        code, _, error = command(*words)
        assert code == 2
        assert "is a file, which names its methods itself: give one file" in error
