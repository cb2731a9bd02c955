"""Odd federations, through a fit of two rounds with both engines: they train, or say why not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import glocal
from glocal.core.errors import GlocalError

N = 24
GEN = np.random.default_rng(0)
X = GEN.normal(size=(N, 3)).astype(np.float32)
Y = np.arange(N) % 3
IDS = np.arange(N) // 6


def fit(**given: Any) -> glocal.Run:
    """Both engines give the same clients the same figures; the last run."""
    fed = glocal.federation(**{"x": X, "y": Y, "clients": IDS, **given})
    runs = [
        glocal.fit(
            "fedavg(epochs=1)",
            fed,
            model="logistic",
            rounds=2,
            engine=engine,
            baseline="local(lr=0.1, max_epochs=1)",
            progress=False,
        )
        for engine in ("sequential", "vectorised")
    ]
    one, other = ([row["cross_entropy"] for row in run.clients] for run in runs)
    assert one == pytest.approx(other, abs=1e-4)
    assert all(torch.isfinite(v).all() for v in runs[1].model.values())
    return runs[1]


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"clients": [0] * N}, ["0"]),
        ({"y": IDS}, ["0", "1", "2", "3"]),
        ({"clients": 5, "partition": "iid"}, ["0", "1", "2", "3", "4"]),
        ({"clients": [0, 0, 0] + [1] * (N - 3)}, ["0", "1"]),
        ({"clients": ["a", "b"] * 12}, ["a", "b"]),
        ({"clients": ["日本", "é\n"] * 12}, ["é\n", "日本"]),
        ({"clients": ["z" * 5000, "y"] * 12}, ["y", "z" * 5000]),
        ({"clients": [7, "x"] * 12}, ["7", "x"]),
        ({"clients": [7, "7"] * 12}, ["7"]),
        ({"clients": [2**70, 2**40] * 12}, [str(2**40), str(2**70)]),
        ({"clients": np.array([2**63, 1] * 12, np.uint64)}, ["1", str(2**63)]),
        ({"clients": IDS[:, None]}, ["0", "1", "2", "3"]),
        ({"clients": torch.tensor(IDS)}, ["0", "1", "2", "3"]),
        ({"clients": IDS > 1}, ["False", "True"]),
        ({"y": Y[:, None]}, ["0", "1", "2", "3"]),
        ({"y": Y.astype(float)}, ["0", "1", "2", "3"]),
        ({"y": Y > 0}, ["0", "1", "2", "3"]),
        ({"y": [b"a", b"b"] * 12}, ["0", "1", "2", "3"]),
        ({"x": X > 0}, ["0", "1", "2", "3"]),
        ({"x": np.zeros((N, 3))}, ["0", "1", "2", "3"]),
        ({"split": torch.tensor([0.5, 0.25, 0.25])}, ["0", "1", "2", "3"]),
        ({"x": {"a": [2**70, 1] * 12, "b": list(range(N))}}, ["0", "1", "2", "3"]),
    ],
    ids=lambda v: "-".join(v) if isinstance(v, dict) else "",
)
def test_these_train(given: dict[str, Any], names: list[str]) -> None:
    run = fit(**given)
    assert [row["client"] for row in run.clients] == sorted(names, key=names.index)
    assert sum(row["n_train"] + row["n_val"] + row["n_test"] for row in run.clients) == N


LABELS = "labels out of range: row 1 has .* give labels as words"
TOKENS = "x holds integers, which are taken for the ids of tokens.*as in x.astype"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"clients": np.arange(N)}, "client '0' .and 23 clients more. would have an empty split"),
        ({"clients": [*range(N - 1), "n" * 900]}, "would have an empty split"),
        ({"y": Y * 0}, "all labels are the same"),
        ({"y": Y * 0, "classes": 3}, "all labels are the same"),
        ({"split": (0.8, 0, 0.2)}, "should be three positive shares, of training, validation"),
        ({"split": (0.8, 0.2, 0)}, "should be three positive shares"),
        ({"split": 3}, "split=3 should be three positive shares"),
        ({"split": None}, "split=None should be three positive shares"),
        ({"split": (True, 0.1, 0.2)}, "should be three positive shares"),
        ({"clients": [float("inf"), 1] * 12}, "row 0 has inf as its client id"),
        ({"clients": [[0], [1]] * 12}, r"row 0 has \[0\] as its client id"),
        ({"clients": [10**5000, 1] * 12}, "cannot be written as text"),
        ({"clients": ["\udc80", "a"] * 12}, "cannot be written as text"),
        ({"clients": dict.fromkeys(range(N), 1)}, "neither a number of clients nor one id"),
        ({"clients": np.array(3)}, "clients=3 is neither a number of clients nor one id"),
        ({"clients": 2.5, "partition": "iid"}, "number of clients must be an integer"),
        ({"clients": IDS, "partition": "iid"}, "one id for each row in clients=, or a partition"),
        ({"clients": 3, "partition": ""}, "the partition is empty"),
        ({"clients": 3, "partition": 3}, "3 is not text"),
        ({"y": [0, 2**40] * 12}, LABELS),
        ({"y": [0, 2**63] * 12}, LABELS),
        ({"y": [0, 2**70] * 12}, LABELS),
        ({"y": [0, 10**400] * 12}, LABELS),
        ({"y": np.array([0, 2**63] * 12, np.uint64)}, LABELS),
        ({"y": [0.0, 1e300] * 12}, LABELS),
        ({"y": np.array([[1], [2, 3]] * 12, object)}, "y holds values that are neither"),
        ({"y": np.array([b"\xff", b"a"] * 12)}, "y holds values that are neither"),
        ({"classes": 2**70}, "classes must be an integer from 2 to"),
        ({"classes": 3.5}, "classes must be an integer from 2 to"),
        ({"classes": True}, "classes must be an integer from 2 to"),
        ({"x": X[:, :0]}, r"x has shape \(24, 0\), so its rows are empty"),
        ({"x": np.where(X > 1, np.nan, X)}, "x is not finite .NaN or infinite. in row"),
        ({"x": np.full((N, 3), 1e300)}, "x is not finite"),
        ({"x": np.arange(3 * N).reshape(N, 3) - 1}, TOKENS),
        ({"x": np.full((N, 3), 2**64 - 1, np.uint64)}, TOKENS),
        ({"x": np.arange(3 * N).reshape(N, 3)}, "layer .* cannot run: .*as in x.astype"),
        ({"x": {"a": [10**400, 1] * 12}}, "column 'a' is not finite .infinite, or too large. in"),
        ({"transforms": 3}, "transforms=3 should be a list of texts"),
        ({"transforms": [3]}, "should be a list of texts"),
        ({"transforms": ["pair-noise(0.1, clients=only())"]}, "names no client"),
    ],
    ids=lambda v: "-".join(v) if isinstance(v, dict) else "",
)
def test_these_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(GlocalError, match=said) as refused:
        fit(**given)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


def test_labels_of_one_token_stay_sequences() -> None:
    tokens = np.arange(N)[:, None] % 5
    fed = glocal.federation(tokens, tokens, IDS)
    assert fed.y.shape == (N, 1)
    assert glocal.federation(X, Y[:, None], IDS).fingerprint == (
        glocal.federation(X, Y, IDS).fingerprint
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"method": 3}, "3 is no method: give a spec such as 'fedavg'"),
        ({"engine": 3}, "unknown engine 3: known are auto"),
        ({"device": None}, "device must be text, not None"),
        ({"fraction": "x"}, "fraction must be a number, not 'x'"),
        ({"fraction": True}, "fraction must be a number, not True"),
        ({"init": {"layers.0.weight": 3, "layers.0.bias": 4}}, "layers.0.weight is no tensor"),
        ({"adapt": 3}, "3 is not text"),
        ({"attack": 3}, "3 is not text"),
    ],
    ids=lambda v: "-".join(v) if isinstance(v, dict) else "",
)
def test_arguments_of_fit(given: dict[str, Any], said: str) -> None:
    fed = glocal.federation(X, Y, IDS)
    settings: dict[str, Any] = {"method": "fedavg", "model": "logistic", "rounds": 1, **given}
    with pytest.raises(GlocalError, match=said):
        glocal.fit(fed=fed, progress=False, **settings)
