"""Public data: like the clients' examples, and none of theirs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import glocal
from glocal.core.errors import GlocalError
from glocal.data.federation import Federation, federation
from glocal.experiment.public_data import check_public


@pytest.fixture(scope="module")
def fed() -> Federation:
    gen = np.random.default_rng(0)
    x = gen.normal(size=(120, 3)).astype(np.float32)
    return federation(x, gen.integers(0, 2, 120), np.arange(120) % 4)


def test_examples_of_nobody_are_taken(fed: Federation, capsys: pytest.CaptureFixture[str]) -> None:
    x, y = check_public((torch.randn(9, 3, dtype=torch.float64), torch.arange(9) % 2), fed)
    assert x.dtype == fed.x.dtype
    assert y.tolist() == [0, 1] * 4 + [0]
    assert capsys.readouterr().err == ""


def test_public_data_of_another_precision_is_used(fed: Federation) -> None:
    """And so are numpy's arrays."""
    public = (torch.randn(6, 3, dtype=torch.float64).numpy(), np.arange(6, dtype=np.int32) % 2)
    run = glocal.fit(
        "fedavg",
        fed,
        rounds=1,
        model="mlp(2)",
        adapt="ewc(fisher=public, max_epochs=1)",
        public=public,
        baseline="local(max_epochs=1)",
    )
    assert run.clients["adapted_verdict"]


def test_clients_examples_are_not(fed: Federation, capsys: pytest.CaptureFixture[str]) -> None:
    fresh = torch.randn(5, 3)
    tested = torch.cat([fresh, fed[2].test[0]])
    labels = torch.zeros(len(tested), dtype=torch.int64)
    count = len(fed[2].test[0])
    with pytest.raises(
        GlocalError, match=f"^{count} of {count + 5} public examples are clients' t"
    ):
        check_public((tested, labels), fed)
    check_public(fed[1].train, fed)
    assert "public examples are clients' training or validation examples" in capsys.readouterr().err
    with pytest.raises(GlocalError, match="public examples are clients' test examples"):
        glocal.fit(
            "fedavg", fed, rounds=1, model="mlp(2)", adapt="ewc(fisher=public)", public=fed[0].test
        )


def test_rows_that_coincide_by_chance_are_let_through() -> None:
    gen = np.random.default_rng(1)
    x = gen.integers(0, 2, (400, 3)).astype(np.float32)  # eight kinds of rows
    fed = federation(x, gen.integers(0, 2, 400), np.arange(400) % 4)
    public = torch.tensor(gen.integers(0, 2, (20, 3)), dtype=torch.float32)
    check_public((public, torch.zeros(20, dtype=torch.int64)), fed)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (torch.zeros(2, 4), torch.zeros(2).long(), "public data does not fit the data: x is 2×4"),
        (torch.zeros(2, 3), torch.tensor([0, 2]), "y must be labels from 0 to 1"),
        (torch.zeros(2, 3), torch.zeros(2), "y must be labels"),
        (torch.full((2, 3), torch.nan), torch.zeros(2).long(), "NaN or infinite"),
        (torch.zeros(0, 3), torch.zeros(0).long(), "public= has no examples"),
    ],
)
def test_what_does_not_fit(fed: Federation, x: torch.Tensor, y: torch.Tensor, message: str) -> None:
    with pytest.raises(GlocalError, match=message):
        check_public((x, y), fed)
