"""What is published says the same everywhere; ``make package`` builds and uses it."""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from glocal.core.version import VERSION

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tool() -> Any:
    spec = importlib.util.spec_from_file_location("package", ROOT / "tools" / "package.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_version_is_in_one_place(tool: Any) -> None:
    assert tool.version() == VERSION
    assert PROJECT["dynamic"] == ["version"]
    assert f"\nversion: {VERSION}\n" in text("CITATION.cff")
    assert text("CHANGELOG.md").startswith(f"# Changelog\n\n## {VERSION} ")


def test_the_licence_is_the_same_everywhere() -> None:
    assert PROJECT["license"] == "Apache-2.0"
    assert "\nlicense: Apache-2.0\n" in text("CITATION.cff")
    assert "Apache License" in text("LICENSE")


def test_torch_has_a_range_in_the_project_and_one_version_in_the_constraints() -> None:
    assert "torch>=2.6" in PROJECT["dependencies"]
    assert re.search(r"^torch==\d", text("constraints.txt"), re.MULTILINE)


def test_make_help_and_the_page_for_contributors_have_every_command() -> None:
    lines = re.findall(r"^([a-z-]+):.*## ", text("Makefile"), re.MULTILINE)
    phony = re.search(r"^\.PHONY: (.+)$", text("Makefile"), re.MULTILINE)
    assert phony is not None
    assert set(lines) == set(phony[1].split())
    named = set(re.findall(r"^make ([a-z-]+)", text("CONTRIBUTING.md"), re.MULTILINE))
    assert named <= set(lines)
    assert {each for each in lines if each.startswith("test")} | {"check", "package"} <= named
    assert set(re.findall(r"^make ([a-z-]+)", text(".ci/run"), re.MULTILINE)) <= named


def test_the_container_installs_what_is_pinned_and_is_nobody_special() -> None:
    joined = re.sub(r"\\\n\s*", "", text("Containerfile"))
    steps = [line for line in joined.splitlines() if line and not line.startswith("#")]
    words = [step.split()[0] for step in steps]
    assert steps[0] == "FROM python:3.11-slim"
    assert "3.11" in PROJECT["requires-python"]
    installs = [step for step in steps if "pip install" in step]
    assert all("-c constraints.txt" in step for step in installs)
    assert installs[0].endswith(" torch")
    (extras,) = re.findall(r'"\.\[(.+?)\]"', installs[1])
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    assert words.index("USER") > max(i for i, word in enumerate(words) if word == "RUN")
    assert "USER glocal" in steps
    (entry,) = (step for step in steps if step.startswith("ENTRYPOINT"))
    assert json.loads(entry.removeprefix("ENTRYPOINT ")) == ["glocal"]
    for step in steps:
        if step.startswith("COPY"):
            assert all((ROOT / source).exists() for source in step.split()[1:-1]), step


def metadata(version: str = VERSION) -> str:
    head = f"Version: {version}\nLicense-Expression: Apache-2.0\n"
    return f"{head}Description-Content-Type: text/markdown\n\n{README}"


def in_the_wheel() -> list[str]:
    endings = ("*.py", "*.css", "*.js", "py.typed")
    files = [file for ending in endings for file in (ROOT / "src/glocal").rglob(ending)]
    inside = [str(file.relative_to(ROOT / "src")) for file in files]
    return [*inside, f"glocal-{VERSION}.dist-info/licenses/LICENSE"]


def test_a_wheel_is_looked_into(tool: Any) -> None:
    inside = in_the_wheel()
    assert tool.wrong_with_wheel(inside, metadata(), README) == []
    without = [name for name in inside if not name.endswith(("py.typed", "LICENSE", "/style.css"))]
    assert tool.wrong_with_wheel([*without, "tests/conftest.py"], metadata("9.9"), "other") == [
        "the wheel has no glocal/py.typed",
        "the wheel has no glocal/report/page/style.css",
        "tests/conftest.py does not belong into the wheel",
        "the wheel has no LICENSE",
        "the wheel is of version 9.9",
        "the README of the wheel is another one",
    ]


def test_an_sdist_is_looked_into(tool: Any) -> None:
    wanted = re.findall(r"\S+", text("MANIFEST.in"))
    assert {"constraints.txt", "examples", "tests"} <= set(wanted)
    wrong = tool.wrong_with_sdist([f"glocal-{VERSION}/README.md"])
    assert "the sdist has no LICENSE" in wrong
    assert "the sdist has no README.md" not in wrong
