"""What the documentation shows runs as it stands, and its links lead somewhere."""

import json
import re
import sys
from pathlib import Path

import pytest

from glocal import list_methods
from glocal.methods import registry
from glocal.methods.local import local
from glocal.report.catalogue import show_method

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs" / "hooks"))
import check_links  # noqa: E402
import measured  # noqa: E402
import method_pages  # noqa: E402

sys.path.insert(0, str(ROOT / "tools"))
import readme  # noqa: E402

HOW_TO = ROOT / "docs" / "how-to"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
PAGES.append(ROOT / "examples" / "README.md")


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def prose(page: Path) -> str:
    return re.sub(r"(?ms)^```.*?^```", "", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    return {measured.slug(title) for title in re.findall(r"(?m)^#+ (.*)$", prose(page))}


SLOW = ("experiments.md", "own-aggregator.md", "own-compressor.md", "own-weighting.md")
"""Pages whose code `make docs` runs, which takes longer."""
RUNNABLE = [
    pytest.param(
        page.name,
        i,
        code,
        marks=[pytest.mark.docs] if page.name in SLOW else [],
        id=f"{page.stem}-{i}",
    )
    for page in (ROOT / "README.md", *sorted(HOW_TO.glob("*.md")))
    for i, code in enumerate(blocks(page))
]


@pytest.mark.parametrize(("page", "number", "code"), RUNNABLE)
def test_python_in_the_docs_runs(page, number, code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(
        local.__kwdefaults__, "max_epochs", 2
    )  # what clients have alone is no point
    # Run from a file: dataclasses look their annotations up in a module.
    file = tmp_path / "shown.py"
    file.write_text(code, encoding="utf-8")
    named = dict(registry.REGISTERED)
    try:
        exec(compile(code, file, "exec"), {"__name__": "shown"})
    finally:
        registry.REGISTERED.clear()
        registry.REGISTERED.update(named)
    assert capsys.readouterr().out.strip(), f"block {number} of {page} prints nothing"


def test_the_readme_shows_what_was_kept_of_the_demo():
    page = readme.README.read_text(encoding="utf-8")
    assert len(readme.BLOCK.findall(page)) == len(readme.MEASURED.findall(page)) == 1
    kept = json.loads(readme.KEPT.read_text(encoding="utf-8"))
    assert readme.shown(page, kept) == page, "python tools/readme.py --again"


def test_the_readme_shows_an_own_model_in_15_lines():
    own = next(code for code in blocks(ROOT / "README.md") if "nn.Sequential" in code)
    assert len([line for line in own.splitlines() if line.strip()]) <= 15


def test_the_method_example_is_under_50_lines():
    (example,) = blocks(HOW_TO / "own-method.md")
    assert len([line for line in example.splitlines() if line.strip()]) < 50


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)]+))?\)", prose(page)):
        linked = page.parent / target if target else page
        assert linked.exists(), f"{page.name} links to {target}"
        if anchor and linked.suffix == ".md":
            assert anchor in anchors(linked), f"{page.name} links to #{anchor} of {target}"


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda p: p.stem)
def test_a_page_is_in_the_navigation_and_on_the_first_page(page):
    place = page.relative_to(ROOT / "docs").as_posix()
    assert f": {place}\n" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert place == "index.md" or f"]({place}" in (ROOT / "docs/index.md").read_text("utf-8")


def test_every_command_shown_exists():
    from glocal.cli.app import app

    known = {command.callback.__name__ for command in app.registered_commands if command.callback}
    known |= {str(group.name) for group in app.registered_groups}
    for page in PAGES:
        shown = re.findall(r"^glocal ([a-z]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert set(shown) <= known, page.name


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return method_pages.pages()


def test_every_method_has_a_page(pages):
    assert set(pages) == {f"reference/methods/{name}.md" for name in ("index", *list_methods())}


def test_a_page_of_a_method_has_its_parts(pages):
    page = pages["reference/methods/ditto.md"]
    parts = ("In plain words", "Paper and equation", "Its result", "Settings", "Its file")
    assert re.findall("^## (.*)$", page, re.MULTILINE) == list(parts)
    assert "F_i(v) + (λ/2) ‖v − w‖²" in page
    assert "| `lam` | `0.1` | a number | strength of the pull" in page
    assert "](../../../src/glocal/methods/ditto.py)" in page
    assert "| ditto | 98.7 | 93.4 |" in page  # of docs/measurements/personalisation.md


@pytest.mark.parametrize("name", registry.BUILT_IN)
def test_a_method_says_when_it_helps_and_when_not(name, capsys):
    show_method(name)
    said = capsys.readouterr().out.replace("\n", " ")
    assert "It helps" in said
    assert "It does not" in said


def test_the_house_is_drawn_with_all_its_rooms():
    rooms = {path.name for path in (ROOT / "src" / "glocal").iterdir() if path.is_dir()}
    drawn = set(re.findall(r">([a-z]+)</text>", (ROOT / "docs/pictures/house.svg").read_text()))
    assert drawn == rooms - {"testing", "__pycache__"}


def test_results_are_of_the_method_alone_or_of_the_component():
    assert measured.about("`fedavg`", "fedavg", component=False)
    assert measured.about("fedavg(lr=1e+3, epochs=2)", "fedavg", component=False)
    assert not measured.about("fedavg+median", "fedavg", component=False)
    assert measured.about("fedavg+trimmed-mean(share=0.2)", "trimmed-mean", component=True)
    assert not measured.about("fedavg+trimmed-mean(share=0.2)", "mean", component=True)


def test_an_empty_cell_is_that_of_the_row_above():
    rows = ["| split | method | a |", "| --- | --- | --- |", "| iid | x | 1 |", "| | y | 2 |"]
    assert measured._markdown(rows, "y", component=False)[2:] == ["| iid | y | 2 |"]


@pytest.mark.parametrize(
    "notebook", sorted((ROOT / "docs").rglob("*.ipynb")), ids=lambda path: path.stem
)
def test_notebooks_are_kept_without_outputs(notebook):
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    assert not [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")]


def test_what_a_site_lacks_is_found(tmp_path):
    (tmp_path / "a.html").write_text(
        '<h1 id="top">A</h1><a href="b.html#there">b</a><a href="#top">up</a><a href="http://x">x</a>'
    )
    (tmp_path / "b.html").write_text('<a href="c.html">c</a><script src="https://cdn.org/x.js">')
    assert check_links.wrong(tmp_path) == [
        "a.html links to b.html#there: there is no such anchor",
        "a.html links to http://x: it is malformed",
        "b.html loads https://cdn.org/x.js, which is not part of the site",
        "b.html links to c.html: there is no such file",
    ]
