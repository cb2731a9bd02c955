"""Searches from the command line, and in folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import glocal
from glocal.core.errors import GlocalError
from glocal.experiment.config import Config
from glocal.runs import same_data, tune

pytestmark = pytest.mark.usefixtures("few_digits")

SMALL = ["--clients", 3, "--rounds", 3, "--model", "mlp(8)"]


def test_methods_have_as_many_candidates(tmp_path: Path, command: Any) -> None:
    space = ["--space", "lr=0.05,0.2,0.5", "--space", "fedprox.mu=0.1,1"]
    out = tmp_path / "a.json"
    code, shown, said = command(
        "tune", "fedavg", "fedprox", *SMALL, *space, "--json", out, "--out", tmp_path / "a"
    )
    assert (code, said) == (0, "")
    methods = json.loads(out.read_text())["methods"]
    assert [len(about["trials"]) for about in methods.values()] == [3, 3]
    assert set(methods["fedprox"]["settings"]) == {"lr", "mu"}
    chosen = " ".join(f"'{about['spec']}'" for about in methods.values())
    assert f"glocal compare {chosen}" in shown
    code, again, _ = command("resume", tmp_path / "a", "--json", tmp_path / "b.json")
    assert (code, again) == (0, shown)
    assert (tmp_path / "b.json").read_bytes() == out.read_bytes()
    known = tmp_path / "a" / same_data.FILE
    known.write_text('{".": {"data": "of another table"}}')
    code, _, said = command("resume", tmp_path / "a")
    assert code == 2
    assert f"the data of {tmp_path / 'a'} has changed since" in said


def test_in_python_and_from_a_file_it_is_the_same(tmp_path: Path, command: Any) -> None:
    space = {"lr": [0.05, 0.2]}
    found = glocal.tune("fedavg", space, clients=3, rounds=2, model="mlp(8)", diverged="skip")
    file = tmp_path / "a.toml"
    file.write_text(
        'method = "fedavg"\nclients = 3\nrounds = 2\nmodel = "mlp(8)"\n[sweep]\nlr = [0.05, 0.2]\n'
    )
    code, shown, _ = command("tune", file, "--out", tmp_path / "a")
    assert code == 0
    assert f"validation data chooses {found.spec}" in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fedavg"], "add --space"),
        (["fedavg", "--space", "lr"], "cannot be read"),
        (["fedavg", "--space", "fedprox.mu=1"], "not among the methods"),
        (["fedavg", "--space", "mu=1"], "mu"),
        (["fedavg", "--space", "fedavg.rounds=2,9"], "set them by --rounds"),
        (["missing.toml"], "there is no file"),
    ],
)
def test_what_cannot_be_done(command: Any, words: list[str], said: str) -> None:
    code, out, error = command("tune", *words)
    assert (code, out) == (2, "")
    assert said in error
    assert error.count("\n") == 1


def test_a_folder_of_another_search_is_refused(tmp_path: Path) -> None:
    one = tune.Search(["fedavg"], {"lr": [0.1]}, Config())
    tune.new(one, tmp_path / "a")
    with pytest.raises(GlocalError, match="another search"):
        tune.new(tune.Search(["fedavg"], {"lr": [0.2]}, Config()), tmp_path / "a")
