"""Some clients of a federation with their own rows: all that is drawn for them stays the same."""

from __future__ import annotations

import pytest
import torch

import glocal
from glocal.core import rng
from glocal.data.federation import Federation
from glocal.engines.batching import plan

PLACES = (1, 4, 2)


def whole(group: bool = False) -> Federation:
    n = 180
    x = rng.normal(rng.key(1), (n, 3))
    y = (x[:, 0] > 0).long()
    units = torch.arange(n) // 2 if group else None
    return glocal.federation(x, y, torch.arange(n) // 30, group=units, seed=3)


def assert_same_clients(part: Federation, fed: Federation) -> None:
    assert part.names == tuple(fed.names[k] for k in PLACES)
    for place, client in enumerate(PLACES):
        for ours, theirs in zip(
            (part[place].train, part[place].val, part[place].test),
            (fed[client].train, fed[client].val, fed[client].test),
            strict=True,
        ):
            torch.testing.assert_close(ours[0], theirs[0], rtol=0, atol=0)
            assert torch.equal(ours[1], theirs[1])


@pytest.mark.parametrize("group", [False, True])
def test_a_part_has_its_own_rows_in_every_fold(group: bool) -> None:
    fed = whole(group)
    part = fed.part(PLACES)
    assert len(part.x) == 90
    for fold in (0, 1):
        assert_same_clients(part.fold(fold), fed.fold(fold))


def test_the_batches_of_a_part_are_those_of_the_whole() -> None:
    fed = whole()
    part = fed.part(PLACES)

    def batches(of: Federation, ids: torch.Tensor) -> torch.Tensor:
        keys = rng.fold(rng.key(7), of.number_of(ids))
        batches = plan(of.train, ids, keys, 2, 5)
        return of.x[batches.rows[batches.weight > 0]]

    ours, theirs = batches(part, torch.arange(3)), batches(fed, torch.tensor(PLACES))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("group", [False, True])
def test_rows_that_are_numbered_later_are_split_as_in_the_whole(group: bool) -> None:
    """A node splits its own rows once it is told its clients' numbers."""
    fed = whole(group)
    rows = [fed.unsplit.rows.of(k) for k in PLACES]  # type: ignore[union-attr]
    own = torch.cat(rows)
    names = [fed.names[k] for k, r in zip(PLACES, rows, strict=True) for _ in r]
    units = None if fed.unit is None else fed.unit[own]
    alone = glocal.federation(fed.x[own], fed.y[own], names, group=units, seed=3)
    order = [PLACES[[fed.names[k] for k in PLACES].index(name)] for name in alone.names]
    node = alone.numbered(order)
    for place, client in enumerate(order):
        assert torch.equal(node[place].train[0], fed[client].train[0])
        assert torch.equal(node[place].test[0], fed[client].test[0])
    assert node.numbered(order) is node


def test_a_part_of_a_part_keeps_the_numbers_of_the_whole() -> None:
    again = whole().part(PLACES).part([2, 0])
    assert again.numbers is not None
    assert again.numbers.tolist() == [2, 1]
