"""Exported models give the probabilities of the model itself, for any number of rows."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from hospital_rows import columns, trained

import glocal
from glocal.core.errors import GlocalError
from glocal.prediction import exporting
from glocal.prediction.exporting import export


@pytest.fixture(scope="module")
def run() -> glocal.Run:
    return trained()[1]


def rows(n: int) -> dict[str, list[object]]:
    return {name: cells[:n] for name, cells in columns().items()}


def test_torchs_own_program_needs_nothing_of_ours(run: glocal.Run, tmp_path: Path) -> None:
    model = run.client_model("Wien")
    export(model, tmp_path / "m", "torch")
    program = torch.export.load(io.BytesIO((tmp_path / "m/model.pt2").read_bytes())).module()
    for n in (1, 5):
        features = model.preprocessing.apply(rows(n))  # type: ignore[union-attr]
        expected = model.predict_proba(rows(n))
        np.testing.assert_allclose(program(features).detach(), expected, atol=1e-6)
    assert glocal.load_model(tmp_path / "m").name == "Wien"


def test_onnx(run: glocal.Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    onnx = pytest.importorskip("onnx")
    reference = pytest.importorskip("onnx.reference")
    pytest.importorskip("onnxscript")
    model = run.client_model("Wien")
    export(model, tmp_path / "m", "onnx")
    assert capfd.readouterr() == ("", "")
    program = onnx.load(tmp_path / "m/model.onnx")
    onnx.checker.check_model(program)
    evaluated = reference.ReferenceEvaluator(program)
    for n in (1, 5):
        features = model.preprocessing.apply(rows(n)).numpy()  # type: ignore[union-attr]
        (found,) = evaluated.run(None, {"inputs": features})
        np.testing.assert_allclose(found, model.predict_proba(rows(n)), atol=1e-6)


def test_formats_that_there_are_not(
    run: glocal.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(GlocalError, match="unknown format 'pickle'"):
        export(run.client_model("Wien"), tmp_path / "m", "pickle")
    monkeypatch.setattr(exporting, "find_spec", lambda name: None)
    with pytest.raises(GlocalError, match=r"pip install 'glocal\[onnx\]'"):
        export(run.client_model("Wien"), tmp_path / "m", "onnx")
    assert not (tmp_path / "m").exists()
