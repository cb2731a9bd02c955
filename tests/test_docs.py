"""What the documentation shows runs as it stands, and its links lead somewhere."""

import re
from pathlib import Path

import pytest

from glocal.methods.local import local

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


RUNNABLE = [
    (page.name, i, code)
    for page in (ROOT / "README.md", *(ROOT / "docs" / p for p in ("own-method.md", "predict.md")))
    for i, code in enumerate(blocks(page))
]


@pytest.mark.parametrize(("page", "number", "code"), RUNNABLE, ids=lambda v: str(v)[:14])
def test_python_in_the_docs_runs(page, number, code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(
        local.__kwdefaults__, "max_epochs", 2
    )  # what clients have alone is no point
    # Run from a file: dataclasses look their annotations up in a module.
    file = tmp_path / "shown.py"
    file.write_text(code, encoding="utf-8")
    exec(compile(code, file, "exec"), {"__name__": "shown"})
    assert capsys.readouterr().out.strip(), f"block {number} of {page} prints nothing"


def test_the_readme_shows_an_own_model_in_15_lines():
    own = next(code for code in blocks(ROOT / "README.md") if "nn.Sequential" in code)
    assert len([line for line in own.splitlines() if line.strip()]) <= 15


def test_the_method_example_is_under_50_lines():
    (example,) = blocks(ROOT / "docs" / "own-method.md")
    assert len([line for line in example.splitlines() if line.strip()]) < 50


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_command_shown_exists():
    from glocal.cli.app import app

    known = {command.callback.__name__ for command in app.registered_commands if command.callback}
    known |= {str(group.name) for group in app.registered_groups}
    for page in PAGES:
        shown = re.findall(r"^glocal ([a-z]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert set(shown) <= known, page.name
