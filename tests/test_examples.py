"""Every example runs as it stands, prints something, and leaves nothing behind.

Those that take more than a second have a command of their own, ``make test-examples``.
"""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from glocal.methods import registry

FOLDER = Path(__file__).parent.parent / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))

QUICK = {"own_data", "own_table", "predict_and_export"}


@pytest.fixture
def names() -> Iterator[None]:
    """What an example registers is gone after it."""
    before = dict(registry.REGISTERED)
    yield
    registry.REGISTERED.clear()
    registry.REGISTERED.update(before)


@pytest.mark.parametrize(
    "file",
    [
        pytest.param(each, marks=[] if each.stem in QUICK else pytest.mark.examples, id=each.stem)
        for each in EXAMPLES
    ],
)
def test_an_example_runs(
    file: Path,
    names: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(file), run_name="__main__")
    said = capsys.readouterr()
    assert len(said.out.splitlines()) >= 2
    assert "nan" not in said.out.lower().split()
    assert said.err == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_is_short_and_says_what_it_is(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert 20 <= len(text.splitlines()) <= 40
    assert text.startswith('"""')


def test_the_page_lists_them_all() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\]\((\w+\.py)\)", page)) == {file.name for file in EXAMPLES}
