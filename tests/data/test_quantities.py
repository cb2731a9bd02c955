"""Labels that are numbers: how they are read, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from glocal.core.errors import GlocalError
from glocal.data.federation import Federation, federation
from glocal.data.loading import load

N = 60


def made(y: Any, task: str = "regression", **options: Any) -> Federation:
    x = np.random.default_rng(0).normal(size=(N, 3)).astype("float32")
    return federation(x, y, np.arange(N) % 4, task=task, **options)


def test_training_rows_have_mean_0_and_deviation_1_and_the_unit_comes_back() -> None:
    y = np.linspace(-5, 90, N)
    fed = made(y)
    for fold in (fed, fed.fold(1)):
        train = fold.y_train[fold.train.rows]
        assert float(train.mean()) == pytest.approx(0, abs=1e-6)
        assert float(train.std(unbiased=False)) == pytest.approx(1, rel=1e-6)
        assert fold.target.labels(fold.y).numpy() == pytest.approx(y, abs=1e-5)
    assert fed.fold(1).target != fed.target
    assert fed.fingerprint != made(2 * y).fingerprint  # the same but for the unit
    assert torch.allclose(fed.y, made(2 * y).y)


def test_decimal_commas_and_lines(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    lines = [f"{'abc'[i % 3]};{i % 5};{i},{i % 7}" for i in range(N)]
    path.write_text("\n".join(["client;x;label", *lines]), encoding="utf-8")
    fed = load(path, task="regression")
    expected = [i + (i % 7) / 10 for i in range(N)]
    assert fed.target.labels(fed.y).tolist() == pytest.approx(expected, abs=1e-4)
    with pytest.raises(GlocalError, match="label column 'label' holds 60 different numbers"):
        load(path)  # and not 60 words
    path.write_text("\n".join(["client;x;label", *lines[:-1], "a;1;"]), encoding="utf-8")
    with pytest.raises(GlocalError, match="line 61 has no label in column 'label'"):
        load(path, task="regression")
    path.write_text(
        "\n".join(["client;x;label", *(f"a;{i};size {i}" for i in range(9))]), encoding="utf-8"
    )
    with pytest.raises(GlocalError, match="holds words, such as 'size 0', and regression needs"):
        load(path, task="regression")


@pytest.mark.parametrize(
    ("y", "options", "message"),
    [
        ([0.5] * N, {}, "all labels are the same"),
        ([*range(N - 1), -1], {"task": "counts"}, "row 59 has -1, which is no count"),
        ([*range(N - 1), 0.5], {"task": "counts"}, "say task='regression' for other numbers"),
        (["a", "b"] * 30, {}, "regression needs y to be one number for each row"),
        ([*range(N - 1), float("nan")], {}, "row 59 has no label"),
        ([*range(N - 1), float("inf")], {}, "not finite"),
        (range(N), {"task": "regresion"}, "did you mean 'regression'"),
        (range(N), {"classes": 3}, "goes with classification"),
        (range(N), {"pooled": True}, "goes with classification"),
        (range(N), {"transforms": ["pair-noise(0.4)"]}, "changes classes, and labels are numbers"),
    ],
)
def test_what_is_refused(y: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(GlocalError, match=message):
        made(list(y), **options)


def test_partitions_that_need_classes_are_refused() -> None:
    x, y = np.zeros((N, 2), "float32"), np.arange(N) / 7
    with pytest.raises(GlocalError, match="partitions by classes, and labels are numbers"):
        federation(x, y, 4, partition="dirichlet(0.3)", task="regression")
    group = np.arange(N) // 2
    fed = federation(x, y, 4, partition="iid", task="regression", group=group)
    assert len(fed) == 4
    assert not fed.label_shift_only


def test_floats_that_may_be_a_quantity_are_not_classified() -> None:
    for y in (np.arange(N) % 12 * 1.0, np.arange(N) % 3 / 2):
        with pytest.raises(GlocalError, match=r"y holds .* different numbers"):
            made(y, "auto")
    assert made(np.arange(N) % 12 * 1.0, "classification").classes == 12
    assert made(np.arange(N) % 12, "auto").classes == 12  # integers of an array are classes
