"""Splits that the data brings, the official test set cut by training labels, and scales."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import glocal
from glocal.core.errors import GlocalError

N = 40
Y = np.arange(N) % 4
CLIENTS = np.repeat(["a", "b"], N // 2)
X = np.arange(N * 2, dtype=np.float32).reshape(N, 2)


def parts(every: int = 4, val: bool = True) -> list[str]:
    return ["test" if i % every == 0 else "val" if val and i % every == 1 else "train" for i in
            range(N)]  # fmt: skip


def test_parts_are_kept_in_every_fold() -> None:
    fed = glocal.federation(X, Y, CLIENTS, parts=parts(5), seed=3)
    for fold in (0, 1):
        again = fed.fold(fold)
        assert again.test.of(0).tolist() == [0, 5, 10, 15]
        assert again.val.of(1).tolist() == [21, 26, 31, 36]
        assert len(again.train.rows) == 24


def test_validation_is_cut_from_training_rows_where_there_is_none() -> None:
    fed = glocal.federation(X, Y, CLIENTS, parts=parts(5, val=False))
    assert fed.test.of(1).tolist() == [20, 25, 30, 35]
    assert fed.val.counts().tolist() == [2, 2]  # 1/8 of 16
    assert fed.train.counts().tolist() == [14, 14]
    every = torch.cat([fed.train.rows, fed.val.rows, fed.test.rows]).sort().values
    assert every.tolist() == list(range(N))


def test_a_tables_column_and_the_names_that_parts_have(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    words = ["Test" if p == "test" else "validation" if p == "val" else p for p in parts(5)]
    lines = [f"{x},{c},{y},{p}" for (x, _), c, y, p in zip(X, CLIENTS, Y, words, strict=True)]
    path.write_text("\n".join(["x,client,label,set", *lines]))
    fed = glocal.load(path, parts="set")
    assert fed.describe["features"] == ["x"]
    assert len(fed.test.rows) == len(fed.val.rows) == 8
    bad = ["x,client,label,set", *lines[:4], "1,a,0,holdout"]
    path.write_text("\n".join(bad))
    with pytest.raises(GlocalError, match=r"line 6 is in the part 'holdout', and parts are"):
        glocal.load(path, parts="set")


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"parts": ["train"] * N}, "client 'a' has 20 training, 0 validation and 0 test rows"),
        ({"parts": ["test"] * N}, "too few for training"),
        ({"parts": ["train"]}, "parts has 1 entries for 40 rows"),
        ({"parts": parts(), "chronological": True}, "leave one of them out"),
        ({"test": "official"}, "takes an official test set"),
        ({"test": "other"}, "test"),
    ],
)
def test_parts_that_cannot_be(given: dict[str, object], match: str) -> None:
    with pytest.raises(GlocalError, match=match):
        glocal.federation(X, Y, CLIENTS, **given)  # type: ignore[arg-type]


def official(
    clients: int = 5, n: int = 400, partition: str = "dirichlet(0.5)"
) -> glocal.Federation:
    y, y_test = np.arange(n) % 4, np.arange(n // 4) % 4
    x, x_test = (np.stack([v, v], 1).astype(np.float32) for v in (y, y_test))
    return glocal.federation(
        x, y, clients, partition=partition, central=(x_test, y_test), test="official", seed=1
    )


def test_the_official_test_set_is_cut_by_training_labels() -> None:
    fed = official()
    rows = fed.test.rows
    assert rows.sort().values.tolist() == list(range(400, 500))  # each row is one client's
    assert int(torch.cat([fed.train.rows, fed.val.rows]).max()) < 400
    for k in range(5):
        own = torch.cat([fed.train.of(k), fed.val.of(k)])
        shares = torch.bincount(fed.y[own], minlength=4) / 100
        got = torch.bincount(fed.y[fed.test.of(k)], minlength=4) / 25
        assert torch.allclose(shares, got, atol=0.5 / 25 * 2)  # to the nearest row
    assert fed.describe["test"] == "official"
    assert torch.equal(fed.fold(1).test.rows, rows)


def test_a_small_client_gets_one_official_row() -> None:
    y = np.concatenate([np.arange(400) % 4, [0, 0, 0]])
    ids = np.repeat(["large", "small"], [400, 3])
    x = y[:, None].astype(np.float32)
    central = (np.arange(20, dtype=np.float32)[:, None] % 4, np.arange(20) % 4)
    fed = glocal.federation(x, y, ids, central=central, test="official")
    assert fed.test.counts().tolist() == [19, 1]
    assert fed.y[fed.test.of(1)].tolist() == [0]


def test_normalise_is_fitted_on_each_folds_training_rows() -> None:
    x = np.random.default_rng(0).normal(3, 2, (60, 3, 4, 4)).astype(np.float32)
    x[:, 1] *= 10
    y = np.arange(60) % 2
    made = {
        "clients": 3,
        "partition": "iid",
        "transforms": ["normalise"],
        "central": (x[:5], y[:5]),
    }
    fed = glocal.federation(x, y, **made)  # type: ignore[arg-type]
    for fold in (fed, fed.fold(1)):
        train = fold.x[fold.train.rows]
        assert torch.allclose(train.mean((0, 2, 3)), torch.zeros(3), atol=1e-5)
        assert torch.allclose(train.std((0, 2, 3), unbiased=False), torch.ones(3), atol=1e-5)
        plain = torch.from_numpy(x)[fold.train.rows].mean((0, 2, 3))
        assert fold.describe["normalised"]["mean"] == pytest.approx(plain.tolist(), rel=1e-5)
    assert not torch.equal(fed.x, fed.fold(1).x)
    assert fed.central is not None
    assert torch.equal(fed.central[0], fed.x[:5])


def test_normalise_with_given_values_and_resize() -> None:
    x = np.ones((12, 1, 4, 4), np.float32)
    y = np.arange(12) % 2
    made = {"clients": 2, "partition": "iid", "central": (x[:4], y[:4])}
    transforms = ["resize(8)", "normalise(0.5, 0.25)"]
    fed = glocal.federation(x, y, transforms=transforms, **made)  # type: ignore[arg-type]
    assert fed.x.shape == (12, 1, 8, 8)
    assert torch.allclose(fed.x, torch.tensor(2.0))
    assert fed.central is not None
    assert fed.central[0].shape == (4, 1, 8, 8)
    assert fed.label_shift_only  # all clients alike
    for spec, match in (
        ("normalise(0.5)", "a mean and a std"),
        ("normalise([1, 2], [1, 2])", "2 values for 1 channels"),
        ("normalise(0, 0)", "std above 0"),
        ("resize(0)", "height of resize"),
    ):
        with pytest.raises(GlocalError, match=match):
            glocal.federation(x, y, transforms=[spec], **made)  # type: ignore[arg-type]
    with pytest.raises(GlocalError, match="resize needs images"):
        glocal.federation(X, Y, CLIENTS, transforms=["resize(8)"])
