"""Every partition, on data of any size: each row is dealt once, or the deal is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glocal.core.errors import GlocalError
from glocal.data.partition import Partition, list_partitions, make

some = settings(max_examples=40, deadline=None, derandomize=True)

A = st.sampled_from([0.01, 0.3, 1, 100])
S = st.integers(1, 6)
SPECS = {
    "iid": st.just("iid"),
    "shards": S.map(lambda s: f"shards({s})"),
    "classes": S.map(lambda s: f"classes({s})"),
    "dirichlet": A.map(lambda a: f"dirichlet({a})"),
    "dirichlet-clients": A.map(lambda a: f"dirichlet-clients({a})"),
    "quantity": A.map(lambda a: f"quantity({a})"),
    "by": st.just("by(town)"),
}


def test_none_is_missing() -> None:
    assert SPECS.keys() == list_partitions().keys()


def deal(spec: str, n: int, clients: int, classes: int, seed: int) -> Partition | None:
    """None if it was refused, in a sentence."""
    gen = np.random.default_rng(n)
    y = torch.from_numpy(gen.integers(0, classes, n))
    towns = {"town": np.array([f"town {i % clients}" for i in range(n)])}
    try:
        return make(spec, y, clients, seed, towns)
    except GlocalError as error:
        said = str(error)
    assert "\n" not in said
    assert said.endswith(".")
    return None


@pytest.mark.parametrize("name", sorted(SPECS))
def test_every_row_is_dealt_once_and_nobody_is_left_without(name: str) -> None:
    dealt = 0

    @some
    @given(
        spec=SPECS[name],
        n=st.integers(3, 300),
        clients=st.integers(1, 30),
        classes=st.integers(1, 12),
        seed=st.integers(0, 2**63 - 1),
    )
    def check(spec: str, n: int, clients: int, classes: int, seed: int) -> None:
        nonlocal dealt
        p = deal(spec, n, clients, classes, seed)
        if p is None:
            return
        dealt += clients > 1
        assert len(p.rows) == len(p.names) == len(set(p.names)) == clients
        assert int(p.rows.counts().min()) >= 3
        everything = torch.cat([p.rows.rows, p.leftovers])
        assert sorted(everything.tolist()) == list(range(n))
        if name != "classes":  # there, a class without a shard is left over, and counted
            assert len(p.leftovers) == 0
        again = deal(spec, n, clients, classes, seed)
        assert again is not None
        assert torch.equal(p.rows.rows, again.rows.rows)
        assert torch.equal(p.rows.start, again.rows.start)

    check()
    assert dealt >= 5  # what is always refused would prove nothing


@pytest.mark.parametrize("name", sorted(SPECS.keys() - {"by"}))
@some
@given(clients=st.integers(1, 10**30), n=st.integers(1, 60), data=st.data())
def test_what_is_impossible_is_refused(name: str, clients: int, n: int, data: Any) -> None:
    """Three rows a client is the least."""
    clients = max(clients, n // 3 + 1)
    with pytest.raises(GlocalError, match=f"{n} examples are too few for {clients} clients"):
        make(data.draw(SPECS[name]), torch.arange(n) % 3, clients, 0)


def test_more_that_is_impossible() -> None:
    y = torch.arange(30) % 3
    for spec, clients, message in [
        ("shards(4)", 10, "30 examples cannot be cut into 40 shards"),
        ("classes(4)", 3, "classes of a client must be an integer from 1 to 3, not 4"),
        ("dirichlet(0.01)", 10, "did not give each of 10 clients 3 examples"),
        ("dirichlet(1, min=11)", 3, "min must be an integer from 3 to 10, not 11"),
        ("quantity(1, min=2)", 3, "min must be an integer from 3 to 10, not 2"),
        ("dirichlet(nan)", 3, "a must be a number, not 'nan'"),
        ("dirichlet(true)", 3, "a must be a number, not True"),
        ("shards(true)", 3, "s must be an integer, not True"),
        ("", 3, "the partition is empty: leave it out, or name one"),
        ("  ", 3, "the partition is empty"),
        ("by(last(2))", 3, "names no column"),
        ("iid", True, "the number of clients must be an integer of 1 or more, not True"),
        ("iid", 2.5, "the number of clients must be an integer of 1 or more, not 2.5"),
        ("iid", None, "the number of clients must be an integer"),
        (3, 3, "3 is not text"),
    ]:
        with pytest.raises(GlocalError, match=message):
            make(spec, y, clients, 0)  # type: ignore[arg-type]
