"""Notes where rows may belong together: copies between splits, and columns of ids."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from glocal.data.federation import federation
from glocal.data.suggested_groups import keys, looks_like_an_id


def table(**more: Any) -> dict[str, Any]:
    gen = np.random.default_rng(0)
    return {
        "age": gen.normal(size=90),
        "label": np.arange(90) % 2,
        "site": np.arange(90) // 30,
        **more,
    }


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err


def test_a_column_of_ids_is_mentioned(capsys: pytest.CaptureFixture[str]) -> None:
    patient = np.arange(90) // 3
    federation(table(patient_id=patient), "label", "site")
    assert "column 'patient_id' looks like an id and has 30 values in 90 rows" in said(capsys)
    federation(table(patient_id=patient), "label", "site", group="patient_id")
    federation(table(height=patient), "label", "site")
    assert said(capsys) == ""
    federation(table(patient_id=np.arange(90)), "label", "site")  # each row its own
    assert "has another number in every training row, like an id, and was left out" in said(capsys)


def test_copies_between_training_and_test_are_mentioned(capsys: pytest.CaptureFixture[str]) -> None:
    gen = np.random.default_rng(0)
    x, group = gen.normal(size=(30, 2)).astype(np.float32).repeat(3, 0), np.repeat(np.arange(30), 3)
    y, clients = group % 2, group // 10
    fed = federation(x, y, clients)
    copies = sum(bool((fed.x[fed.train.rows] == row).all(1).any()) for row in fed.x[fed.test.rows])
    text = f"{copies} of {len(fed.test.rows)} test rows have a copy among the training rows"
    assert copies > 5
    assert text in said(capsys)
    federation(x, y, clients, group=group)
    federation(gen.normal(size=(90, 2)), y, clients)
    federation(np.zeros((90, 2), np.float32), y, clients)  # one kind of rows: no groups
    assert said(capsys) == ""


def test_equal_rows_have_equal_keys() -> None:
    x = torch.tensor([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0]])
    found = keys(x)
    assert found[0] == found[2] != found[1]
    assert keys(x[:0]).shape == (0,)


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("id", True),
        ("patient", True),
        ("Patient ID", True),
        ("subject_no", True),
        ("userId", True),
        ("patientid", True),
        ("grid", False),
        ("acid", False),
        ("width", False),
        ("humidity", False),
        ("age", False),
    ],
)
def test_names_of_ids(name: str, is_one: bool) -> None:
    assert looks_like_an_id(name) is is_one
