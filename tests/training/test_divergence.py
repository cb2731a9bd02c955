"""The divergence guard: what is not finite is noticed and named, then skipped, clipped or fatal."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import glocal
from glocal.core import tree
from glocal.core.errors import ClientError, GlocalError
from glocal.core.types import Tree, Uplink
from glocal.training.divergence import POLICIES, screen

NAMES = [f"c{i}" for i in range(10)]


def uplink(rows: list[list[float]], loss: list[float] | None = None) -> Uplink:
    ids = torch.arange(len(rows)) + 2
    update = {"w": torch.tensor(rows)}
    extra = {"c": torch.ones(len(rows), 2)}
    told = None if loss is None else torch.tensor(loss)
    return Uplink(ids, torch.ones(len(rows)), update, told, extra)


def through(up: Uplink, policy: str, states: Tree | None = None, robust: bool = False):
    return screen(up, states or {}, policy, robust, None, NAMES, 4)


BAD = [[3.0, 4.0], [math.nan, 1.0], [0.0, 1.0], [6.0, 8.0]]


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_finite_passes_as_it_is(policy: str) -> None:
    up = uplink([[1.0, 2.0], [3.0, 4.0]], [0.5, 0.7])
    found = through(up, policy)
    assert found.uplink is up
    assert found.keeps is None
    assert found.report(NAMES) == {}
    assert found.norm == tree.norm(up.update)


def test_fatal_names_the_client_and_the_round() -> None:
    with pytest.raises(ClientError, match=r"client c3's training in round 5 is not finite"):
        through(uplink(BAD), "fatal")


def test_skip_leaves_its_update_out_and_its_state_as_it_was() -> None:
    found = through(uplink(BAD, [1.0, 2.0, 3.0, 4.0]), "skip", {"v": torch.ones(4, 1)})
    assert found.uplink.ids.tolist() == [2, 4, 5]
    assert found.uplink.loss is not None
    assert found.uplink.loss.tolist() == [1.0, 3.0, 4.0]
    assert found.uplink.update["w"].isfinite().all()
    assert found.keeps.tolist() == [True, False, True, True]
    assert found.report(NAMES) == {"left_out": ["c3"]}


def test_clip_by_hand() -> None:
    # Lengths of the fine ones are 5, 1 and 10: their median is 5. The bad one's rest is (0, 12).
    rows = [[3.0, 4.0], [math.inf, 12.0], [0.0, 1.0], [6.0, 8.0]]
    found = through(uplink(rows, [1.0, math.nan, 3.0, 2.0]), "clip", {"v": torch.ones(4, 1)})
    assert found.uplink.update["w"].tolist() == [[3.0, 4.0], [0.0, 5.0], [0.0, 1.0], [6.0, 8.0]]
    assert found.uplink.loss is not None
    assert found.uplink.loss.tolist() == [1.0, 3.0, 3.0, 2.0]
    assert found.keeps.all()
    assert found.report(NAMES) == {"clipped": ["c3"]}
    # One that is short stays as long as it is.
    short = through(uplink([[3.0, 4.0], [math.nan, 2.0]]), "clip")
    assert short.uplink.update["w"].tolist() == [[3.0, 4.0], [0.0, 2.0]]


def test_a_state_that_is_not_finite_is_never_kept() -> None:
    states: Tree = {"v": torch.tensor([[1.0], [math.nan]])}
    up = uplink([[1.0, 0.0], [0.0, 1.0]])
    with pytest.raises(ClientError, match="c3"):
        through(up, "fatal", states)
    assert through(up, "skip", states).uplink.ids.tolist() == [2]
    clipped = through(up, "clip", states)
    assert clipped.keeps.tolist() == [True, False]
    assert clipped.uplink.update["w"].tolist() == [[1.0, 0.0], [0.0, 1.0]]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_cohort_with_nothing_finite_ends_the_run(policy: str) -> None:
    with pytest.raises(ClientError, match="c2"):
        through(uplink([[math.nan, 0.0], [math.inf, 0.0]]), policy)


def test_a_policy_that_there_is_not_is_refused() -> None:
    fed = glocal.load("digits", clients=4)
    with pytest.raises(GlocalError, match="one of fatal, skip, clip, not 'ignore'"):
        glocal.fit("fedavg", fed, diverged="ignore")
    with pytest.raises(GlocalError, match="use diverged='skip'"):
        glocal.fit("fedavg+dp(clip=1.0,noise=1.0)", fed, diverged="clip")


numbers = st.floats(width=32) | st.sampled_from([math.nan, math.inf, -math.inf, 3e38])


@given(st.lists(st.lists(numbers, min_size=2, max_size=2), min_size=1, max_size=6), st.data())
def test_whatever_is_sent_what_goes_on_is_finite(rows: list[list[float]], data: st.DataObject):
    policy = data.draw(st.sampled_from(POLICIES))
    robust = data.draw(st.booleans())
    loss = data.draw(st.none() | st.lists(numbers, min_size=len(rows), max_size=len(rows)))
    kept = data.draw(st.lists(numbers, min_size=len(rows), max_size=len(rows)))
    states: Tree = {"v": torch.tensor(kept).reshape(-1, 1)}
    try:
        found = through(uplink(rows, loss), policy, states, robust)
    except ClientError:
        return  # the whole cohort, or by choice
    up = found.uplink
    assert up.update["w"].isfinite().all()
    assert up.loss is None or up.loss.isfinite().all()
    assert states["v"][found.keeps].isfinite().all()
    assert len(up.ids) == len(up.n) == len(up.update["w"]) == len(up.extra["c"])
    sent = set(torch.arange(len(rows)).add(2).tolist())
    assert set(up.ids.tolist()) | set(found.left_out) == sent


@pytest.mark.parametrize("engine", ["sequential", "vectorised"])
@pytest.mark.parametrize("method", ["fedavg", "ditto", "scaffold", "aaggff-s", "superfed-mm"])
def test_a_run_goes_on_without_a_client_that_diverges(method: str, engine: str) -> None:
    x, y = torch.randn(80, 4, generator=torch.Generator().manual_seed(1)), torch.arange(80) % 2
    x[60:] *= 1e18  # finite, but the squares of its gradients are not
    fed = glocal.federation(x, y, torch.arange(80) // 20)
    given = {"model": "mlp(4)", "rounds": 3, "engine": engine, "baseline": "local(lr=1e-30)"}
    with pytest.raises(ClientError, match=r"client 3's training in round 1"):
        glocal.fit(method, fed, **given)
    run = glocal.fit(method, fed, **given, diverged="skip")
    assert [line["left_out"] for line in run.history] == [["3"]] * 3
    assert run.summary["diverged"] == {"3": [1, 2, 3]}
    assert all(leaf.isfinite().all() for leaf in run.model.values())
    clipped = glocal.fit(method, fed, **given, diverged="clip")
    assert [line["clipped"] for line in clipped.history] == [["3"]] * 3


def test_updates_that_are_too_long_are_left_out_where_a_bound_is_given() -> None:
    """The client sits the round out: the end is that of a run without it, and its state stays."""
    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(1))
    y = (x[:, 0] > 0).long()
    x[:15] *= 1e4  # the first client's features, and so its gradients
    fed = glocal.federation(x, y, torch.arange(60) // 15)
    settings = {"rounds": 2, "model": "logistic", "baseline": "none", "engine": "sequential"}
    plain = glocal.fit("ditto", fed, **settings)
    bounded = glocal.fit("ditto", fed, longest_update=10, **settings)
    assert all("left_out" not in line for line in plain.history)
    assert [line["left_out"] for line in bounded.history] == [["0"], ["0"]]
    assert bounded.states["ids"].tolist() == [1, 2, 3]
    with pytest.raises(GlocalError, match="leave longest_update out"):
        glocal.fit("fedavg+dp", fed, longest_update=10, **settings)
    with pytest.raises(GlocalError, match="longest_update"):
        glocal.fit("fedavg", fed, longest_update=0, **settings)
