"""Clients in blocks of fixed shapes: their width, their places, and batches with padding."""

from __future__ import annotations

from dataclasses import astuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glocal.core import rng
from glocal.data.split import from_counts
from glocal.engines.base import WASTE, Workload
from glocal.engines.batching import BatchIndex, PlanSize, plan
from glocal.engines.compiled.blocks import (
    CACHE,
    MAX_BLOCKS,
    Layout,
    cache_width,
    lane_width,
    wasted,
    width,
)
from glocal.slots.client import Phase

PHASE = Phase("train", 2, lambda *_: {})


counts = st.lists(st.integers(1, 200), min_size=1, max_size=60)


@given(counts, st.integers(1, 40), st.integers(1, 60), st.booleans())
@settings(max_examples=200, deadline=None)
def test_blocks_waste_little_or_are_as_many_as_may_be(
    n: list[int], batch: int, cohort: int, varies: bool
) -> None:
    split = from_counts(torch.arange(sum(n)), torch.tensor(n))
    wide = width(split, PHASE, batch, Workload(0, cohort, varies))
    assert 1 <= wide <= cohort
    if varies:
        assert wide <= -(-cohort // 8)
    # A cohort as expected: spread over all sizes.
    steps = (-(-torch.tensor(n) // batch) * 2).sort(descending=True).values
    typical = steps[torch.linspace(0, len(n) - 1, cohort).round().long()]
    others = [wasted(typical, -(-cohort // b)) for b in range(8 if varies else 1, MAX_BLOCKS + 1)]
    assert wasted(typical, wide) <= WASTE or wasted(typical, wide) == min(others)


def test_waste_is_what_is_computed_for_nobody() -> None:
    # Blocks (9, 5) and (4, nobody): 2·9 + 2·4 steps are computed for 18 of somebody.
    assert wasted(torch.tensor([9, 5, 4]), 2) == pytest.approx(26 / 18 - 1)


def test_clients_alike_are_one_block() -> None:
    split = from_counts(torch.arange(60), torch.full((6,), 10))
    assert width(split, PHASE, 5, Workload(0, 6)) == 6


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 5))
@settings(max_examples=100, deadline=None)
def test_a_layout_puts_everybody_in_one_place(n: list[int], wide: int) -> None:
    laid = Layout.of(torch.tensor(n), wide, torch.device("cpu"))
    assert len(laid.order) == laid.blocks * wide
    assert torch.equal(laid.order[laid.places], torch.arange(len(n)))
    first = [n[int(i)] for i in laid.order[::wide]]
    assert (
        laid.n[:, 0].tolist()
        == first
        == [max(n[int(i)] for i in part) for part in laid.order.split(wide)]
    )


@pytest.mark.parametrize("batch_size", [0, 3, 100])
@pytest.mark.parametrize("steps", [None, 7])
def test_room_for_anybody_changes_no_batch(batch_size: int, steps: int | None) -> None:
    split = from_counts(torch.arange(31), torch.tensor([4, 11, 2, 14]))
    phase = replace_steps(steps)
    ids = torch.tensor([0, 2])  # not the largest
    keys = rng.fold(rng.key(3), ids)
    room = PlanSize.of(split.counts(), phase.epochs, steps, batch_size)
    tight = plan(split, ids, keys, phase.epochs, batch_size, steps)
    roomy = plan(split, ids, keys, phase.epochs, room.batch, steps, room)
    assert torch.equal(tight.steps, roomy.steps)
    for i in range(len(ids)):
        for t in range(int(tight.steps[i])):
            some = [p.rows[i, t][p.weight[i, t] > 0] for p in (tight, roomy)]
            assert torch.equal(*some)
    assert float(roomy.weight.sum()) == float(tight.weight.sum())


@pytest.mark.parametrize("steps", [None, 7])
def test_an_index_made_beforehand_changes_no_batch(steps: int | None) -> None:
    split = from_counts(torch.arange(33), torch.tensor([11, 11, 11]))
    phase, ids = replace_steps(steps), torch.tensor([2, 0])
    keys, size = rng.fold(rng.key(3), ids), PlanSize.of(split.counts(), phase.epochs, steps, 4)
    index = BatchIndex.of(torch.tensor([11]), size, steps)
    made = [plan(split, ids, keys, phase.epochs, 4, steps, size, given) for given in (None, index)]
    for a, b in zip(*map(astuple, made), strict=True):
        assert torch.equal(a, b)


def replace_steps(steps: int | None) -> Phase:
    return PHASE._replace(steps=steps)


@pytest.mark.parametrize(
    ("cohort", "size", "wide"),
    [
        (100, 10_000, 100),  # all fit the caches of two cores
        (1000, 10_000, 63),  # sixteen blocks
        (10, 800_000, 1),
        (10, 300_000, 2),  # five blocks, of eight there might be
        (1, 10**9, 1),
    ],
)
def test_a_block_fits_the_cache_or_is_one_client(cohort: int, size: int, wide: int) -> None:
    assert cache_width(cohort, size) == wide


def test_what_compiling_is_worth() -> None:
    """Steps of 70 clients count twice, those of 20 or fewer once; turns are counted together."""
    assert Workload(1000, 70).worth == 1000  # not side by side: the rule is of steps alone
    assert Workload(1000, 5, turns=(5,)).worth == 1000
    assert Workload(1000, 20, turns=(20,)).worth == 1000
    assert Workload(1000, 70, turns=(70, 20)).worth == 3000


def test_lanes_fill_the_cache_of_a_core() -> None:
    assert lane_width(CACHE // 3 // 18) == 16
    assert lane_width(CACHE // 3 // 3) == 3
    assert lane_width(CACHE) == 1
