"""A client's model takes raw rows in any form, and refuses rows that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hospital_rows import QUICK, columns, hospitals, rows_of, trained

import glocal
from glocal.core.errors import GlocalError
from glocal.prediction.predictions import as_csv, table


@pytest.fixture(scope="module")
def fed() -> glocal.Federation:
    return trained()[0]


@pytest.fixture(scope="module")
def run() -> glocal.Run:
    return trained()[1]


@pytest.fixture(scope="module")
def model(run: glocal.Run) -> glocal.ClientModel:
    return run.client_model("Köln")


def test_raw_rows_are_predicted_as_the_run_evaluated_them(
    fed: glocal.Federation, run: glocal.Run
) -> None:
    for k, name in enumerate(fed.names):
        model, rows = run.client_model(name), rows_of(fed, k)
        x, y = fed[k].test
        assert model.name == name
        torch.testing.assert_close(model.logits(rows), model.module(x), atol=1e-6, rtol=0)
        right = float(np.mean(model.predict(rows) == np.array(rows["outcome"])))
        assert right == pytest.approx(run.clients[k]["accuracy"])
        assert [model.classes[code] for code in y.tolist()] == rows["outcome"]


def test_probabilities_are_those_worked_out_by_hand(fed: glocal.Federation) -> None:
    """Of a linear model on two columns of numbers: mean, deviation, product, softmax."""
    plain = hospitals(features=["weight", "age"])
    model = glocal.fit("fedavg", plain, **{**QUICK, "model": "logistic"}).client_model("Görlitz")
    raw = columns()
    train = plain.train.rows.tolist()
    ages = [raw["age"][i] for i in train if raw["age"][i] is not None]
    weights = [raw["weight"][i] for i in train]
    median = sorted(ages)[(len(ages) - 1) // 2]
    given = {"weight": [80.0, 61.5], "age": [33, None]}
    by_hand = [
        [(a - np.mean(ages)) / np.std(ages), gap, (w - np.mean(weights)) / np.std(weights)]
        for a, gap, w in ((33, 0, 80.0), (median, 1, 61.5))
    ]
    state = model.module.state_dict()
    scores = np.array(by_hand) @ state["layers.0.weight"].numpy().T + state["layers.0.bias"].numpy()
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(given), shares, atol=1e-6)
    assert model.predict(given).tolist() == [["no", "yes"][c] for c in shares.argmax(1)]


def test_rows_in_every_form_give_the_same(model: glocal.ClientModel, tmp_path: Path) -> None:
    raw = {name: cells[:9] for name, cells in columns().items()}
    frame, file = pd.DataFrame(raw), tmp_path / "new.csv"
    frame.to_csv(file, index=False)
    listed = [{name: raw[name][i] for name in raw} for i in range(9)]
    expected = model.predict_proba(raw)
    forms: list[Any] = [frame, pl.DataFrame(raw), listed, file, str(file)]
    forms.append({name: raw[name] for name in reversed(list(raw)) if name != "outcome"})
    for rows in forms:
        np.testing.assert_allclose(model.predict_proba(rows), expected, atol=1e-9)
    np.testing.assert_allclose(model.predict_proba(listed[3]), expected[3:4], atol=1e-6)
    assert model.predict(frame).tolist() == [model.classes[c] for c in expected.argmax(1)]


def test_a_word_that_no_training_row_had_is_none_of_the_known(model: glocal.ClientModel) -> None:
    rows = {name: cells[:2] for name, cells in columns().items()} | {"ward": ["kidneys", "heart"]}
    features = model.preprocessing.apply(rows)  # type: ignore[union-attr]
    names = model.preprocessing.features  # type: ignore[union-attr]
    of_ward = [i for i, name in enumerate(names) if name.startswith("ward=")]
    assert len(of_ward) == 2
    assert features[:, of_ward].tolist() == [[0, 0], [1, 0]]
    assert model.unknown_words(rows) == {"ward": ["kidneys"]}
    assert model.predict(rows).shape == (2,)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"age": None}, "the rows have no column 'age', with which the model was trained"),
        ({"age": ["old"]}, "column 'age' should hold numbers.* row 0 has 'old'"),
        ({"weight": ["27.9 kg"]}, "column 'weight' should hold numbers.*'27.9 kg'"),
        ({"admitted": [3.5]}, "column 'admitted' should hold dates"),
        ({"weight": [float("inf")]}, "column 'weight' is not finite"),
        ({"ward": [["heart"]]}, "column 'ward' has .* give one value"),
        ({"age": []}, "has shape"),
    ],
)
def test_rows_that_do_not_fit_are_an_error(
    model: glocal.ClientModel, changed: dict[str, Any], said: str
) -> None:
    rows = {name: cells[:1] for name, cells in columns().items()} | changed
    rows = {name: cells for name, cells in rows.items() if cells is not None}
    with pytest.raises(GlocalError, match=said):
        model.predict(rows)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({}, "no rows"),
        ([], "no rows"),
        (pd.DataFrame({"age": []}), "no rows"),
        ([{"age": 3}, {"weight": 4}], "row 0 has no 'weight', which other rows have"),
        (np.zeros((2, 8)), "is no row of a table: give a DataFrame"),
        (torch.zeros(2, 5), r"inputs of shape \[2, 5\]: give floats of shape \[n, 7\]"),
        (Path("new.txt"), "there is no file"),
    ],
)
def test_what_is_no_row_is_an_error(model: glocal.ClientModel, rows: Any, said: str) -> None:
    with pytest.raises(GlocalError, match=said):
        model.predict(rows)


def test_a_model_that_diverged_predicts_nothing(run: glocal.Run) -> None:
    model = run.client_model("Köln")
    next(model.module.parameters()).data.fill_(float("nan"))
    with pytest.raises(GlocalError, match="no finite number for row 0: its training diverged"):
        model.predict(columns())


def test_labels_are_called_as_they_were_given() -> None:
    rows = columns()
    coded = rows | {"outcome": [2 if each == "yes" else 1 for each in rows["outcome"]]}
    fed = glocal.federation(coded, y="outcome", clients="site")
    model = glocal.fit("fedavg", fed, **QUICK).client_model("Wien")
    assert model.classes == [1, 2]
    assert set(model.predict(rows).tolist()) <= {1, 2}
    assert model.predict(rows).dtype.kind == "i"
    assert list(table(model, rows)) == ["prediction", "p_1", "p_2"]


def test_a_client_has_its_own_statistics_and_nobody_elses() -> None:
    fed = hospitals(preprocessing="client")
    run = glocal.fit("fedavg", fed, **QUICK)
    for k, name in enumerate(fed.names):
        model, rows = run.client_model(name), rows_of(fed, k)
        assert model.preprocessing is not None
        assert model.preprocessing.clients is None
        assert torch.equal(model.preprocessing.apply(rows), fed[k].test[0])


def test_predictions_as_a_table_of_text(model: glocal.ClientModel) -> None:
    columns_of = {"prediction": ["a,b", 'say "no"'], "p_a,b": [0.25, 1 / 3]}
    assert as_csv(columns_of) == 'prediction,"p_a,b"\n"a,b",0.25\n"say ""no""",0.333333333\n'
    rows = {name: cells[:4] for name, cells in columns().items()}
    found = table(model, rows)
    assert np.add(found["p_no"], found["p_yes"]) == pytest.approx(1)
    assert found["prediction"] == model.predict(rows).tolist()
