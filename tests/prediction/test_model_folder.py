"""A saved model: whole or not at all, no code in it, the same predictions again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hospital_rows import QUICK, columns, trained
from torch import nn

import glocal
from glocal.core import checksums
from glocal.core.errors import GlocalError
from glocal.prediction import model_folder
from glocal.prediction.model_folder import ITSELF


@pytest.fixture(scope="module")
def fed() -> glocal.Federation:
    return trained()[0]


@pytest.fixture(scope="module")
def run() -> glocal.Run:
    return trained()[1]


@pytest.fixture
def saved(run: glocal.Run, tmp_path: Path) -> Path:
    run.client_model("Wien").save(tmp_path / "m")
    return tmp_path / "m"


def test_a_saved_model_predicts_the_same(run: glocal.Run, saved: Path) -> None:
    model, again = run.client_model("Wien"), glocal.load_model(saved)
    assert (again.name, again.classes) == ("Wien", ["no", "yes"])
    assert again.description == model.description
    assert np.array_equal(again.predict_proba(columns()), model.predict_proba(columns()))
    assert not again.module.training
    assert sorted(p.name for p in saved.iterdir()) == [
        *("model.json", "model.safetensors", "preprocessing.json"),
    ]
    assert [p.name for p in saved.parent.iterdir()] == ["m"]
    facts = json.loads((saved / "model.json").read_text())
    assert facts["architecture"] == "mlp(4)"
    assert facts["glocal"] == glocal.__version__
    assert (facts["version"], facts["task"], facts["metric"]) == (1, "classification", "accuracy")
    again.save(saved.parent / "copy")
    for name in ("model.json", "model.safetensors", "preprocessing.json"):
        assert (saved / name).read_bytes() == (saved.parent / "copy" / name).read_bytes()


@pytest.mark.parametrize("at", ["save_tensors", "dump", "os.replace"])
def test_a_model_that_is_not_written_to_its_end_is_none(
    run: glocal.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Killed at any moment, as if the process had ended there: nothing is cleaned up."""

    def killed(*_: Any) -> None:
        raise SystemExit

    monkeypatch.setattr(model_folder.shutil, "rmtree", lambda *_, **__: None)
    monkeypatch.setattr(*((os, "replace") if at == "os.replace" else (model_folder, at)), killed)
    with pytest.raises(SystemExit):
        run.client_model("Wien").save(tmp_path / "m")
    monkeypatch.undo()
    assert not (tmp_path / "m").exists()
    with pytest.raises(GlocalError, match="there is no folder"):
        glocal.load_model(tmp_path / "m")
    run.client_model("Wien").save(tmp_path / "m")  # what was left does not stand in the way
    assert glocal.load_model(tmp_path / "m").name == "Wien"


def test_what_killed_saves_left_is_removed_once_nobody_can_be_writing_to_it(
    run: glocal.Run, tmp_path: Path
) -> None:
    over, runs, fresh, other = (
        tmp_path / name
        for name in (
            f".m.{2**30}.part",  # no process has such a number
            f".m.{os.getppid()}.part",
            f".m.{2**30 + 1}.part",
            f".m.x.{2**30}.part",  # of a model m.x
        )
    )
    for folder in (over, runs, fresh, other):
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"half")
        if folder is not fresh:
            for path in (folder / "model.safetensors", folder):
                os.utime(path, (1, 1))
    run.client_model("Wien").save(tmp_path / "m")
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"m", runs.name, fresh.name, other.name}


def test_a_folder_with_something_in_it_is_left_as_it_is(run: glocal.Run, saved: Path) -> None:
    with pytest.raises(GlocalError, match="is not empty: choose another"):
        run.client_model("Köln").save(saved)
    assert glocal.load_model(saved).name == "Wien"
    (saved.parent / "file").write_text("")
    with pytest.raises(GlocalError, match="is a file: choose another"):
        run.client_model("Köln").save(saved.parent / "file")
    (saved.parent / "empty").mkdir()
    run.client_model("Köln").save(saved.parent / "empty")
    assert glocal.load_model(saved.parent / "empty").name == "Köln"


def changed(file: Path, **facts: Any) -> None:
    """Write it as another program might, with a checksum that is right."""
    now = json.loads(file.read_text()) | facts
    now.pop(ITSELF)
    file.write_text(json.dumps({**now, ITSELF: checksums.of_json(now)}))


def test_a_description_is_the_one_that_was_saved(saved: Path) -> None:
    file = saved / "model.json"
    facts = json.loads(file.read_text())
    file.write_text(json.dumps(dict(reversed(facts.items()))))  # laid out otherwise
    assert glocal.load_model(saved).classes == ["no", "yes"]
    for wrong in ({"classes": ["yes", "no"]}, {ITSELF: None}, {"more": 1}):
        file.write_text(json.dumps(facts | wrong))
        with pytest.raises(GlocalError, match=r"model.json is not the file that was saved"):
            glocal.load_model(saved)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"version": 2}, "is of format 2, and this version reads format 1"),
        ({"classes": [["a"]]}, "damaged at"),
        ({"outputs": "2"}, "damaged at {'outputs': '2'}"),
        ({"classes": []}, "damaged at"),
        ({"own": 1}, "damaged at"),
        ({"input_shape": [-1]}, "damaged at"),
        ({"files": {}}, "is not the file that was saved"),
        ({"files": {"../secret": ""}}, "damaged at"),
        ({"architecture": "mlp(5)"}, "do not fit the model MLP"),
        ({"input_shape": [10**12]}, "do not fit the model MLP"),
        ({"input_shape": [2**62, 4]}, "damaged at"),
        ({"architecture": "nope"}, "unknown model 'nope'"),
    ],
)
def test_a_description_that_was_changed_is_an_error(
    saved: Path, facts: dict[str, Any], said: str
) -> None:
    changed(saved / "model.json", **facts)
    with pytest.raises(GlocalError, match=said):
        glocal.load_model(saved)


def test_files_that_are_missing_or_damaged_are_an_error(saved: Path, run: glocal.Run) -> None:
    run.client_model("Köln").save(saved.parent / "k")
    weights = (saved / "model.safetensors").read_bytes()
    (saved / "model.safetensors").write_bytes((saved.parent / "k/model.safetensors").read_bytes())
    with pytest.raises(GlocalError, match="is not the file that was saved"):
        glocal.load_model(saved)
    (saved / "model.safetensors").write_bytes(weights)
    (saved / "preprocessing.json").unlink()
    with pytest.raises(GlocalError, match="is not whole, as it has no preprocessing"):
        glocal.load_model(saved)
    for content in (b"[]", b"{", b"\xff"):
        (saved / "model.json").write_bytes(content)
        with pytest.raises(GlocalError, match="damaged"):
            glocal.load_model(saved)
    (saved / "model.json").unlink()
    with pytest.raises(GlocalError, match="is no saved model, as it has no model"):
        glocal.load_model(saved)


class Net(nn.Module):
    """A user's own, with a part that is not trained and a buffer."""

    scale: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(7, 3), nn.Linear(3, 2)
        self.first.weight.requires_grad_(False)
        self.register_buffer("scale", torch.rand(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        return self.last(self.first(x).relu() * self.scale)  # type: ignore[no-any-return]


def test_an_own_model_is_asked_for(fed: glocal.Federation, tmp_path: Path) -> None:
    run = glocal.fit("fedper", fed, **{**QUICK, "model": Net()})
    model = run.client_model("Wien")
    model.save(tmp_path / "m")
    with pytest.raises(GlocalError, match=r"an own model \(Net, given in Python\).*module="):
        glocal.load_model(tmp_path / "m")
    with pytest.raises(GlocalError, match=r"is no torch\.nn\.Module"):
        glocal.load_model(tmp_path / "m", module=3)  # type: ignore[arg-type]
    with pytest.raises(GlocalError, match="do not fit the model Linear"):
        glocal.load_model(tmp_path / "m", module=nn.Linear(7, 2))
    for given in (Net, Net()):
        again = glocal.load_model(tmp_path / "m", module=given)
        assert np.array_equal(again.predict_proba(columns()), model.predict_proba(columns()))
    trained()[1].client_model("Görlitz").save(tmp_path / "named")
    with pytest.raises(GlocalError, match="built by its name: leave module= out"):
        glocal.load_model(tmp_path / "named", module=Net)
