"""Federations of image data: partitions, specs, and the official test set."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from image_files import (
    idx_files,
    toy,
    toy_arrays,
    write,
)

from glocal.core.errors import GlocalError
from glocal.data.datasets import registry
from glocal.data.federation import federation
from glocal.data.loading import load

GREY = toy_arrays((1, 28, 28))


MNIST = toy(registry.MNIST, GREY)


@pytest.fixture(autouse=True)
def _no_data_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of the test's own, and no client: nothing here reaches a network."""
    monkeypatch.delenv("GLOCAL_DATA", raising=False)
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))


@pytest.fixture
def mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MNIST", MNIST)
    monkeypatch.setenv("GLOCAL_DATA", str(write(tmp_path / "d", idx_files(GREY))))


@pytest.mark.usefixtures("mnist")
def test_training_rows_are_dealt_and_the_official_test_set_is_kept_apart() -> None:
    fed = load("mnist", clients=4, partition="iid")
    assert fed.x.shape == (40, 1, 28, 28)
    assert fed.x.dtype == torch.float32
    assert torch.equal(fed.x, torch.tensor(GREY["x_train"]) / 255)
    assert fed.y.tolist() == GREY["y_train"].tolist()
    assert sum(len(s.rows) for s in (fed.train, fed.val, fed.test)) == 40
    assert fed.central is not None
    x, y = fed.central
    assert torch.equal(x, torch.tensor(GREY["x_test"]) / 255)
    assert y.tolist() == GREY["y_test"].tolist()
    assert y.dtype == torch.int64
    assert (fed.classes, fed.describe["central"], fed.label_shift_only) == (10, 12, True)


@pytest.mark.usefixtures("mnist")
def test_examples_are_the_first() -> None:
    for spec in ("mnist(20)", "mnist(examples=20)"):
        fed = load(spec, clients=2, partition="iid")
        assert torch.equal(fed.x, torch.tensor(GREY["x_train"][:20]) / 255)
        assert fed.describe["data"] == spec
        assert fed.central is not None
        assert len(fed.central[0]) == 12


@pytest.mark.usefixtures("mnist")
@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("mnist(0)", "integer from 1 to 40"),
        ("mnist(41)", "integer from 1 to 40"),
        ("mnist(some)", "integer"),
        ("mnist(size=3)", "unknown setting of mnist 'size': known are examples, folder"),
        ("mnist(folder=3)", "in mnist, folder must be text, not 3"),
        ("mnist(", "cannot read"),
        ("digits(3)", "digits takes no settings: write it without brackets"),
        ("minst(3)", "unknown data set 'minst': did you mean 'mnist'"),
    ],
)
def test_a_wrong_spec_is_one_sentence(spec: str, problem: str) -> None:
    with pytest.raises(GlocalError, match=problem):
        load(spec)


def test_a_folder_in_the_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MNIST", MNIST)
    write(tmp_path / "my files", idx_files(GREY))
    fed = load(f'mnist(folder="{tmp_path / "my files"}")', clients=2, partition="iid")
    assert len(fed.x) == 40


@pytest.mark.usefixtures("mnist")
def test_the_central_test_set_goes_along_untouched() -> None:
    fed = load("mnist", clients=3, transforms=["rotate(90)", "pair-noise(1)"])
    assert fed.central is not None
    x, y = fed.central
    assert torch.equal(x, torch.tensor(GREY["x_test"]) / 255)
    for other in (fed.fold(1), fed.fold(1).fold(0), fed.to("cpu")):
        assert other.central is not None
        assert torch.equal(other.central[0], x)
        assert torch.equal(other.central[1], y)
    moved = fed.to("meta").central
    assert moved is not None
    assert {t.device.type for t in moved} == {"meta"}


def test_the_central_test_set_is_not_in_the_fingerprint() -> None:
    x, y, ids = torch.arange(30.0), torch.arange(30) % 3, [0] * 30
    plain = federation(x, y, ids)
    assert plain.central is None
    assert "central" not in plain.describe
    assert plain.to("cpu").central is None
    assert federation(x, y, ids, central=(x, y)).fingerprint == plain.fingerprint
    # Today's fingerprints stay what they are: result files have them.
    assert load("digits", clients=5).fingerprint.startswith("bb84b54a38234192")


@pytest.mark.parametrize(
    ("central", "problem"),
    [
        (torch.ones(4), "takes a pair"),
        ((torch.ones(4, 2), torch.ones(4)), "give the same features"),
        ((torch.ones(4, dtype=torch.int64), torch.ones(4)), "give the same features"),
        ((torch.ones(4), torch.ones(5)), "4 examples and 5 labels"),
        ((torch.ones(4), torch.full((4,), 3)), "labels out of range"),
        ((torch.ones(4), ["a"] * 4), "should be numbers"),
    ],
)
def test_a_wrong_central_test_set_is_one_sentence(central: Any, problem: str) -> None:
    with pytest.raises(GlocalError, match=problem):
        federation(torch.arange(30.0), torch.arange(30) % 3, [0] * 30, central=central)


def test_a_table_takes_no_central_test_set() -> None:
    table = {"a": list(range(30)), "b": [i % 3 for i in range(30)]}
    with pytest.raises(GlocalError, match="not with a table"):
        federation(table, "b", [0] * 30, central=(torch.ones(4, 1), torch.ones(4)))
