"""The house's import rule: which room may open which door; and nothing but rooms in the root."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import glocal

ROOT = Path(glocal.__file__).parent

SLOTS = {"core", "nn", "data", "slots"}
WITHOUT_METHODS = SLOTS | {"engines", "evaluation", "training"}
BELOW_EXPERIMENT = WITHOUT_METHODS | {"methods", "prediction"}
MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "nn": {"core"},
    "data": {"core"},
    "prediction": {"core", "nn", "data"},
    "slots": {"core", "nn", "data"},
    "methods": SLOTS,
    "engines": SLOTS,
    "evaluation": SLOTS | {"engines"},
    "training": SLOTS | {"engines", "evaluation"},
    "experiment": BELOW_EXPERIMENT,
    "runs": BELOW_EXPERIMENT | {"experiment"},
    "deploy": BELOW_EXPERIMENT | {"experiment", "runs"},
    "studies": BELOW_EXPERIMENT | {"experiment", "runs", "deploy"},
    "report": BELOW_EXPERIMENT | {"experiment", "runs", "studies"},
    "cli": BELOW_EXPERIMENT | {"experiment", "runs", "deploy", "studies", "report"},
}
"""The rooms, lowest first, and which others each may import."""

IN_THE_ROOT = {"__init__.py", "__main__.py"}


def rooms_imported(source: str) -> set[str]:
    """The rooms that a module's text imports, anywhere in it; ``""`` is the package itself."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            base = node.module or ""
            inside = {f"{base}.{alias.name}" for alias in node.names}
            names |= inside if base == "glocal" else {base}
    parts = [name.split(".") for name in names if name.split(".")[0] == "glocal"]
    return {part[1] if len(part) > 1 else "" for part in parts}


def forbidden(room: str, source: str) -> set[str]:
    """What a module of ``room`` imports although its room may not."""
    return rooms_imported(source) - {room} - MAY_IMPORT[room]


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_rooms_open_only_the_doors_they_may(room: str) -> None:
    wrong = {
        str(path.relative_to(ROOT)): sorted(found)
        for path in sorted((ROOT / room).rglob("*.py"))
        if (found := forbidden(room, path.read_text()))
    }
    assert not wrong


def test_nothing_but_rooms_in_the_root() -> None:
    modules = {path.name for path in ROOT.glob("*.py")}
    rooms = {path.relative_to(ROOT).parts[0] for path in ROOT.glob("*/**/*.py")} - {"testing"}
    assert modules <= IN_THE_ROOT
    assert rooms <= set(MAY_IMPORT)


def too_long(root: Path, most: int = 400) -> set[str]:
    """The files below ``root`` that have more lines than a reader keeps in mind."""
    files = {str(path.relative_to(root)): path for path in root.rglob("*.py")}
    return {name for name, path in files.items() if len(path.read_text().splitlines()) > most}


@pytest.mark.parametrize("root", [ROOT, Path(__file__).parent], ids=["source", "tests"])
def test_no_file_is_longer_than_400_lines(root: Path) -> None:
    assert not too_long(root)


def test_a_long_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "long.py").write_text("x = 1\n" * 401)
    (tmp_path / "short.py").write_text("x = 1\n" * 400)
    assert too_long(tmp_path) == {str(Path("room", "long.py"))}


@pytest.mark.parametrize(
    ("room", "planted"),
    [
        ("core", "from glocal.nn import layers"),
        ("methods", "from glocal import engines"),
        ("training", "def late():\n    from glocal.methods.ditto import ditto"),
        ("engines", "import glocal.training.loop"),
        ("report", "import glocal.deploy"),
    ],
)
def test_a_planted_import_is_found(room: str, planted: str) -> None:
    assert forbidden(room, planted)
