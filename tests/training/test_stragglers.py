"""Stragglers: who is slow and by how much, what is dropped, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import glocal
from glocal.core import rng, tree
from glocal.core.errors import GlocalError
from glocal.testing import ragged
from glocal.training.stragglers import Stragglers, stragglers

QUICK: dict[str, Any] = {"model": "mlp(3)", "baseline": "none", "validate_every": 0, "rounds": 3}


def same(a: glocal.Run, b: glocal.Run) -> bool:
    pairs = zip(tree.leaves(a.model), tree.leaves(b.model), strict=True)
    return all(torch.equal(x, y) for x, y in pairs)


def test_a_share_is_slow_by_a_uniform_part() -> None:
    slow = Stragglers(0.3, 0.2, used=True)
    parts = slow.parts(torch.arange(20_000), rng.key(1))
    those = parts[parts < 1]
    assert abs(len(those) / 20_000 - 0.3) < 0.02
    assert float(those.min()) >= 0.2
    assert abs(float(those.mean()) - 0.6) < 0.01
    # Whoever is slow at a smaller share is slow at a larger one, by as much.
    more = replace(slow, share=0.6).parts(torch.arange(20_000), rng.key(1))
    assert torch.equal(more[parts < 1], those)


def test_a_client_is_slow_by_itself() -> None:
    slow, key = Stragglers(0.5, 0.0, used=False), rng.key(4)
    whole = slow.parts(torch.arange(9), key)
    assert torch.equal(slow.parts(torch.tensor([7, 2]), key), whole[[7, 2]])
    assert not torch.equal(whole, slow.parts(torch.arange(9), rng.key(5)))


@pytest.mark.parametrize("spec", ["use(0)", "drop(0)", "use(1, at_least=1)"])
def test_nobody_slow_is_the_plain_run(spec: str) -> None:
    runs = [glocal.fit("scaffold", ragged(), **QUICK, stragglers=s) for s in (None, spec)]
    assert same(*runs)
    assert runs[0].history == runs[1].history


def test_who_is_dropped_is_left_out() -> None:
    """A run that drops stragglers is the run of the others; what they did is counted."""
    fed = ragged()
    dropped, used = (
        glocal.fit("ditto", fed, **QUICK, stragglers=f"{policy}(0.5)") for policy in ("drop", "use")
    )
    slow = [line.get("stragglers", []) for line in used.history]
    assert any(slow)
    assert [line.get("dropped", []) for line in dropped.history] == slow
    assert [line["gradients"] for line in dropped.history] == [
        line["gradients"] for line in used.history
    ]
    assert not same(dropped, used)
    everything = tree.count(dropped.model)
    traffic = dropped.repeats[0].traffic
    for line, down, up in zip(dropped.history, traffic.down, traffic.up, strict=True):
        assert down["shared"] == 6 * everything
        assert up.get("shared", 0) == (6 - len(line.get("dropped", []))) * everything


def test_the_run_says_who_was_slow_and_what_was_computed() -> None:
    fed = ragged()
    plain, slow = (
        glocal.fit("fedavg", fed, **QUICK, stragglers=s) for s in (None, "use(1, at_least=0.5)")
    )
    assert [line["stragglers"] for line in slow.history] == [list(fed.names)] * 3
    whole, some = (run.summary["gradient_evaluations"] for run in (plain, slow))
    assert 0.5 * whole <= some < whole


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("drop(2)", "share must be from 0 to 1, not 2"),
        ("drop(1)", "leaves nobody to train"),
        ("use(0.5, at_least=-1)", "at_least must be from 0 to 1"),
        ("wait(0.5)", "unknown policy for stragglers 'wait'"),
    ],
)
def test_what_is_refused(spec: str, sentence: str) -> None:
    with pytest.raises(GlocalError, match=sentence):
        stragglers(spec)
