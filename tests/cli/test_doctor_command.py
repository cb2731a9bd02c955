"""``glocal doctor``: what is there, what is missing, and what happens if something is broken."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from conftest import Command
from glocal.cli import doctor
from test_public import HIDDEN

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def state(result: dict[str, Any], name: str) -> str:
    (found,) = (each["state"] for each in result["checks"] if each["name"] == name)
    return str(found)


def test_it_knows_the_packages_and_extras_of_the_project() -> None:
    names = {re.split(r"[<>=\[]", each)[0] for each in PROJECT["dependencies"]}
    assert set(doctor.CORE) == names
    assert set(doctor.EXTRAS) == set(PROJECT["optional-dependencies"]) - {"browser", "dev", "docs"}


def test_a_machine_on_which_the_tests_run_works(command: Command) -> None:
    code, out, _ = command("doctor")
    assert code == 0
    assert out.rstrip().endswith("glocal works here.")
    assert re.search(r"^  torch +ok +2\.", out, re.MULTILINE)
    assert re.search(r"^  CPU +ok .*cores?; torch computes with ", out, re.MULTILINE)


def test_json_has_the_same(command: Command, tmp_path: Path) -> None:
    code, out, _ = command("doctor", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["works"]
    assert {each["group"] for each in found["checks"]} == {"core", "machine", "extras"}
    command("doctor", "--json", tmp_path / "doctor.json")
    written = json.loads((tmp_path / "doctor.json").read_bytes())
    assert [each["name"] for each in written["checks"]] == [e["name"] for e in found["checks"]]


def test_without_torch_it_still_says_what_is_there() -> None:
    code = HIDDEN.format(blocked={"torch", "sklearn", "scipy"}) + (
        "sys.argv = ['glocal', 'doctor']\nfrom glocal.cli.app import main\nmain()\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert re.search(r"^  torch +broken +not installed; get it by: pip install", done.stdout, re.M)
    assert re.search(r"^  numpy +ok", done.stdout, re.MULTILINE)
    assert done.stdout.rstrip().endswith("glocal does not work: torch, scikit-learn, scipy.")
    assert "Traceback" not in done.stderr


def test_an_extra_that_is_missing_names_its_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(doctor.EXTRAS, "plot", (("no_such_module",), "pictures"))
    found = doctor.checks()
    assert found["works"]
    assert state(found, "plot") == "missing"
    (line,) = (each for each in doctor.shown(found) if each.startswith("  plot "))
    assert line.endswith("missing  pictures; get it by: pip install 'glocal[plot]'")


def test_what_is_too_old_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy

    monkeypatch.setattr(doctor, "_required", lambda extra="": {} if extra else {"numpy": ">=1.26"})
    monkeypatch.setattr(numpy, "__version__", "1.25.3")
    found = doctor.checks()
    assert not found["works"]
    assert doctor.shown(found)[-1] == "glocal does not work: numpy."


def test_an_import_that_raises_anything_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(name: str) -> Any:
        raise RuntimeError("a library\nis of another kind")

    monkeypatch.setattr(doctor.importlib, "import_module", fails)
    check = doctor._package("scipy", "scipy")
    assert check.state == "broken"
    assert check.found == "cannot be imported (RuntimeError: a library is of another kind)"


@pytest.mark.parametrize(
    ("version", "wanted", "holds"),
    [
        ("2.13.0+cpu", ">=2.6", True),
        ("2.5.1", ">=2.6", False),
        ("2.6", ">=2.6.0", True),
        ("1.43.0", ">=1.41,<1.43", False),
        ("1.42.9", "<1.43,>=1.41", True),
        ("3.0rc1", ">=3", True),
        ("1.0", "", True),
    ],
)
def test_versions_and_bounds(version: str, wanted: str, holds: bool) -> None:
    assert doctor.satisfies(version, wanted) is holds


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert doctor._folder("cache", file / "below", "GLOCAL_CACHE=DIR").state == "missing"
    assert doctor._folder("cache", tmp_path / "not" / "yet", "").state == "ok"


def test_privacy_without_a_word_says_what_is_missing(command: Command) -> None:
    code, _, err = command("privacy")
    assert (code, "Missing option" in err) == (2, True)
