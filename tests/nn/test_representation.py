"""The representation: what goes into a named layer, in the same pass as the logits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from glocal.core import rng
from glocal.core.errors import GlocalError
from glocal.nn import models
from glocal.nn.representation import check_cut, cut, logits_and_representation, representation
from glocal.nn.task import Task

KEY = rng.key(3)


def task(spec: str, shape: tuple[int, ...] = (4,), classes: int = 3) -> Task:
    return Task(models.build(spec, input_shape=shape, classes=classes))


def test_it_is_what_the_layer_reads() -> None:
    """After the ReLU and the dropout of the pass that the logits come from."""
    t, x = task("mlp(6, 5, dropout=0.4)"), rng.normal(rng.key(0), (8, 4))
    logits, h = logits_and_representation(t, t.params, x, KEY, "layers.2")
    assert torch.equal(logits, t.logits(t.params, x, KEY))
    w = t.params
    assert torch.allclose(logits, h @ w["layers.2.weight"].T + w["layers.2.bias"], atol=1e-6)
    assert torch.equal(h, representation(t, t.params, x, KEY, "layers.2"))
    other = representation(t, t.params, x, rng.key(4), "layers.2")
    assert not torch.equal(h, other)  # other masks
    assert not t.module._forward_pre_hooks
    assert not any(layer._forward_pre_hooks for layer in t.module.modules())


def test_later_layers_are_not_run_for_it_alone() -> None:
    class Fails(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise AssertionError("it ran")

    t = Task(nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 2), Fails()))
    x = torch.ones(3, 4)
    w = t.params
    h = representation(t, w, x, KEY, "1")
    assert torch.allclose(h, x @ w["0.weight"].T + w["0.bias"])


@pytest.mark.parametrize(
    ("private", "expected"),
    [
        ([0], "layers.1"),
        ([0, 1], "layers.2"),
        ([1, 2], "layers.3"),
        ([0, 3], "layers.1"),
        ([0, 1, 2, 3], "layers.3"),
        ([2, 3], "layers.3"),
    ],
)
def test_the_cut_follows_the_first_private_layers(private: list[int], expected: str) -> None:
    t = task("mlp(5, 5, 5)")
    assert cut(t, {f"layers.{i}.weight" for i in private}) == expected
    assert cut(t, set(), "layers.1") == "layers.1"


@pytest.mark.parametrize(
    ("spec", "private", "at", "message"),
    [
        ("mlp(5)", ["layers.1.weight"], None, "make no representation"),
        ("logistic", ["layers.0.weight"], None, "make no representation"),
        ("mlp(5)", ["layers.0.weight"], "layers.9", "unknown layer 'layers.9'"),
        ("mlp(5)", ["layers.0.weight"], "layers.0", "no layer comes before layers.0"),
    ],
)
def test_cuts_that_cannot_be_are_one_sentence(
    spec: str, private: list[str], at: str | None, message: str
) -> None:
    with pytest.raises(GlocalError, match=message):
        cut(task(spec), set(private), at)


def test_layers_that_read_no_representation_are_one_sentence() -> None:
    text = task("char-lstm(embedding=2,hidden=3)", (4,), 5)
    tokens = torch.zeros((2, 4), dtype=torch.int64)
    assert check_cut(text, tokens, KEY, "head")[1].shape == (2, 3)
    assert check_cut(text, tokens, KEY, "lstm")[1].shape == (2, 4, 2)
    with pytest.raises(GlocalError, match="layer embedding reads no representation"):
        check_cut(text, tokens, KEY, "embedding")
    flat = Task(nn.Sequential(nn.Linear(4, 4), nn.Flatten(0), nn.Unflatten(0, (2, 4))))
    with pytest.raises(GlocalError, match="has 8 rows for 2 examples"):
        check_cut(flat, torch.ones(2, 4), KEY, "2")
