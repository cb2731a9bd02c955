"""Pooling through ``fit`` and ``compare``: inverted clients are found, and real ones are told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import glocal
from comparing import compared
from glocal.data.federation import Federation
from glocal.data.loading import load
from glocal.data.split import UnsplitData
from glocal.data.transforms import Transform

pytestmark = pytest.mark.usefixtures("few_digits")

QUICK: dict[str, Any] = {"rounds": 1, "model": "mlp(16)", "baseline": "local(max_epochs=8)"}


def inverted(data: UnsplitData) -> UnsplitData:
    """Two clients scan white on black."""
    rows = torch.cat([data.rows.of(k) for k in range(2)])
    return replace(data, x=data.x.index_put((rows,), 1 - data.x[rows]))


def digits(*transforms: Transform, **more: Any) -> Federation:
    return load("digits", clients=6, partition="dirichlet(1)", transforms=transforms, **more)


def test_inverted_clients_are_not_pooled_and_it_says_why() -> None:
    fed = digits(Transform("inverted", inverted), pooled=True)
    summary = glocal.fit("fedavg", fed, **QUICK).summary
    assert summary["estimate"] == "own"
    assert summary["pooling"]["used"] is False
    assert summary["pooling"]["z"] > 5
    assert summary["pooling"]["why"].startswith("Own test splits: clients' models do better on th")
    # Without the user's word, the transform ends pooling by itself, and the test is still told.
    summary = glocal.fit("fedavg", digits(Transform("inverted", inverted)), **QUICK).summary
    assert summary["estimate"] == "own"
    assert "do better on their own test examples" in summary["pooling"]["why"]


def test_as_partitioned_they_are() -> None:
    summary = glocal.fit("fedavg", digits(), **QUICK).summary
    assert summary["estimate"] == "pooled"
    assert abs(summary["pooling"]["z"]) < 2.3
    assert summary["pooling"]["why"].startswith("Pooled test examples: clients' models do as well")
    never = glocal.fit("fedavg", digits(pooled=False), **QUICK).summary
    assert never["estimate"] == "own"
    assert "pooling" not in never


def test_real_clients_that_pass_are_told_and_may_say_so() -> None:
    data = digits()
    client = np.repeat(np.arange(6), [len(rows) for rows in _rows(data)])
    order = torch.cat(_rows(data))
    for pooled, estimate in ((None, "own"), (True, "pooled")):
        real = glocal.federation(data.x[order], data.y[order], client, pooled=pooled)
        summary = glocal.fit("fedavg", real, **QUICK).summary
        assert summary["estimate"] == estimate
        told = "pooled=True would be allowed" in summary["pooling"]["why"]
        assert told is (pooled is None)


def _rows(fed: Federation) -> list[torch.Tensor]:
    return [torch.cat([s.of(k) for s in (fed.train, fed.val, fed.test)]) for k in range(6)]


def test_the_legend_of_a_comparison_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    from glocal.report.comparison import show_comparison

    fed = digits(Transform("inverted", inverted), pooled=True)
    runs = compared(["fedavg"], fed, **QUICK)
    show_comparison(runs)
    text = " ".join(capsys.readouterr().out.split())
    assert "each client's own test split" in text
    assert "so clients differ in more than label shares." in text
