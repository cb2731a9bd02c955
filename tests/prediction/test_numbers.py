"""Models of a number or a count: one prediction in the label's unit, and no probabilities."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hospital_rows import columns, trained
from sklearn.base import is_regressor
from sklearn.metrics import r2_score

import glocal
from glocal.core.errors import GlocalError
from glocal.prediction.description import Description
from glocal.prediction.exporting import export
from glocal.prediction.predictions import table


def model_of(task: str) -> glocal.ClientModel:
    """A linear model of the hospitals' columns, with the weights 0.1, 0.2, …, in another unit."""
    fed, run = trained()
    about = replace(
        run.client_model("Wien").description,
        **{"task": task, "metric": "mae", "classes": (), "architecture": "logistic"},
        **{"outputs": 1, "location": 30.0, "scale": 2.5},
    )
    weights = {
        "layers.0.weight": torch.arange(1, 8)[None] / 10,
        "layers.0.bias": torch.tensor([0.5]),
    }
    return glocal.ClientModel("Wien", about.build(weights, Path("w")), about, fed.preprocessing)


@pytest.mark.parametrize("task", ["regression", "counts"])
def test_a_number_is_in_the_unit_of_the_label(task: str, tmp_path: Path) -> None:
    model = model_of(task)
    assert model.preprocessing is not None
    output = model.preprocessing.apply(columns()).double() @ (torch.arange(1, 8) / 10.0).double()
    plain = output.numpy() + 0.5
    expected = 30 + 2.5 * (np.exp(plain) if task == "counts" else plain)
    np.testing.assert_allclose(model.predict(columns()), expected, rtol=1e-6)
    assert table(model, columns()) == {"prediction": model.predict(columns()).tolist()}
    with pytest.raises(GlocalError, match=f"a model of {task} has no probabilities of classes"):
        model.predict_proba(columns())

    export(model, tmp_path / "m", "torch")
    again = glocal.load_model(tmp_path / "m")
    assert again.description == model.description
    np.testing.assert_array_equal(again.predict(columns()), model.predict(columns()))
    program = torch.export.load(tmp_path / "m/model.pt2").module()
    found = program(model.preprocessing.apply(columns())).detach()
    np.testing.assert_allclose(found, expected, rtol=1e-5)

    estimator = model.estimator()
    assert is_regressor(estimator)
    y = expected + np.arange(len(expected)) % 3
    assert estimator.score(columns(), y) == pytest.approx(r2_score(y, expected))


@pytest.mark.parametrize(
    "wrong", [{"task": "ranking"}, {"outputs": 2}, {"scale": float("inf")}, {"location": 1}]
)
def test_a_description_that_does_not_fit_is_damaged(wrong: dict[str, object]) -> None:
    facts = model_of("regression").description.to_json()
    assert Description.from_json(facts, "m").scale == 2.5
    with pytest.raises(GlocalError, match="m is damaged at"):
        Description.from_json(facts | wrong, "m")
