"""Partitions: disjoint, covering or reported, seeded; hand-worked cases; every error."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from glocal.core.errors import GlocalError
from glocal.data.partition import Partition, list_partitions, make

SPECS = [
    "iid",
    "shards",
    "shards(3)",
    "classes(2)",
    "classes(4)",
    "dirichlet(0.5)",
    "dirichlet(100, min=5)",
    "dirichlet-clients(0.3)",
    "dirichlet-clients(0.01)",
    "quantity(0.5)",
]
few = settings(max_examples=20, deadline=None)


def assigned(p: Partition) -> list[Tensor]:
    """The rows of each client, one by one."""
    return [p.rows.of(k) for k in range(len(p.names))]


def labels(n: int, classes: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, classes, n))


def rows_of(p: Partition) -> list[list[int]]:
    return [a.tolist() for a in assigned(p)]


def shares(p: Partition, y: torch.Tensor, classes: int) -> torch.Tensor:
    counts = torch.stack([torch.bincount(y[a], minlength=classes) for a in assigned(p)])
    return counts / counts.sum(1, keepdim=True)


@pytest.mark.parametrize("spec", SPECS)
@few
@given(n=st.integers(200, 400), clients=st.integers(1, 13), seed=st.integers(0, 1000))
def test_disjoint_and_covering_or_reported(spec: str, n: int, clients: int, seed: int) -> None:
    p = make(spec, labels(n, 5, seed), clients, seed)
    assert len(assigned(p)) == clients == len(p.names)
    dealt = torch.cat([*assigned(p), p.leftovers])
    assert sorted(dealt.tolist()) == list(range(n))
    assert p.label_shift_only
    if clients * 2 >= 5:
        assert len(p.leftovers) == 0


@pytest.mark.parametrize("spec", SPECS)
def test_seeded(spec: str) -> None:
    y = labels(300, 5)
    assert rows_of(make(spec, y, 7, 3)) == rows_of(make(spec, y, 7, 3))
    assert rows_of(make(spec, y, 7, 3)) != rows_of(make(spec, y, 7, 4))


@pytest.mark.parametrize("spec", SPECS)
def test_the_order_of_the_file_does_not_decide_who_gets_what(spec: str) -> None:
    """Rows are shuffled within a class, so a client's rows are not a run of the file."""
    y = torch.arange(400) // 80
    runs = [
        bool((rows[y[rows] == c].diff() == 1).all())
        for rows in assigned(make(spec, y, 3, 0))
        for c in range(5)
        if 2 < int((y[rows] == c).sum()) < 80
    ]
    assert not any(runs)


@pytest.mark.parametrize("spec", ["iid", "shards", "dirichlet-clients(1)"])
def test_sizes_differ_by_little_when_clients_do_not_divide_rows(spec: str) -> None:
    sizes = [len(a) for a in assigned(make(spec, labels(103, 4), 7, 0))]
    assert sum(sizes) == 103
    # 14 shards of 103 rows have 7 or 8 rows, and a client has two of them.
    assert max(sizes) - min(sizes) <= (2 if spec == "shards" else 1)


def test_the_draws_do_not_move() -> None:
    """The same on every platform and in every later version."""
    y = torch.arange(24) % 3
    assert rows_of(make("iid", y, 3, 0)) == [
        [3, 4, 6, 8, 10, 11, 12, 16],
        [0, 5, 9, 13, 15, 17, 19, 23],
        [1, 2, 7, 14, 18, 20, 21, 22],
    ]
    assert rows_of(make("dirichlet(1)", y, 3, 0)) == [
        [0, 3, 9, 14, 15, 18],
        [1, 2, 4, 5, 7, 8, 11, 12, 13, 16, 17, 22, 23],
        [6, 10, 19, 20, 21],
    ]


def test_shards_by_hand() -> None:
    """12 rows, 2 clients, 2 shards each: shards of three rows, and no shard has two classes."""
    y = torch.tensor([0, 1] * 6)
    seen = set()
    for seed in range(20):
        first, second = assigned(make("shards", y, 2, seed))
        assert len(first) == len(second) == 6
        seen.add(int((y[first] == 0).sum()))
    assert seen == {0, 3, 6}


def test_one_shard_a_client_is_one_class_a_client() -> None:
    y = torch.arange(40) % 4
    for rows in assigned(make("shards(1)", y, 4, 1)):
        assert len(rows) == 10
        assert len(set(y[rows].tolist())) == 1


def test_classes_by_hand() -> None:
    """3 classes of 12, 3 clients, s = 2: each class is cut into 2 shards of 6."""
    y = torch.arange(36) % 3
    seen = set()
    for seed in range(30):
        for rows in assigned(make("classes(2)", y, 3, seed)):
            seen.add(tuple(torch.bincount(y[rows], minlength=3).tolist()))
    # Two classes, or one class drawn twice.
    assert seen == {(6, 6, 0), (6, 0, 6), (0, 6, 6), (12, 0, 0), (0, 12, 0), (0, 0, 12)}


def test_classes_that_no_shard_is_cut_from_are_left_over() -> None:
    """2 clients with 1 class each, of 5 classes of 10."""
    y = torch.arange(50) % 5
    p = make("classes(1)", y, 2, 0)
    assert [len(a) for a in assigned(p)] == [10, 10]
    assert len(p.leftovers) == 30
    assert set(y[p.leftovers].tolist()).isdisjoint(y[torch.cat(assigned(p))].tolist())


@pytest.mark.parametrize("spec", ["dirichlet", "dirichlet-clients"])
def test_small_a_is_skewed_and_large_a_is_even(spec: str) -> None:
    y = labels(4000, 4)
    skewed = shares(make(f"{spec}(0.1)", y, 8, 0), y, 4).max(1).values.mean()
    even = shares(make(f"{spec}(1000)", y, 8, 0), y, 4).max(1).values.mean()
    assert skewed > 0.6
    assert even < 0.32


def test_dirichlet_shares_have_the_moments_of_the_distribution() -> None:
    """A share of Dirichlet(a, …, a) over K has mean 1/K and variance (K−1) / (K²(Ka+1))."""
    y, K, a = torch.arange(20_000) % 100, 10, 1.0
    drawn = []
    for seed in range(3):
        for rows in assigned(make(f"dirichlet({a})", y, K, seed)):
            drawn.append(torch.bincount(y[rows], minlength=100) / 200)
    variance = float(torch.stack(drawn).var())
    assert variance == pytest.approx((K - 1) / (K**2 * (K * a + 1)), rel=0.12)


def test_dirichlet_min_is_kept_or_refused() -> None:
    y = labels(400, 4)
    p = make("dirichlet(0.5, min=30)", y, 8, 0)
    assert min(len(a) for a in assigned(p)) >= 30
    with pytest.raises(GlocalError, match="larger a, fewer clients, or dirichlet-clients"):
        make("dirichlet(0.5, min=50)", y, 8, 0)
    with pytest.raises(GlocalError, match=r"dirichlet\(0.001\) did not give each of 40 clients 3"):
        make("dirichlet(0.001)", y, 40, 0)


def test_rounding_does_not_fall_on_the_same_clients_in_every_class() -> None:
    """About .6 of an example of each of ten classes: nobody ends with none."""
    sizes = [len(a) for a in assigned(make("dirichlet(100)", torch.arange(1800) % 10, 300, 0))]
    assert min(sizes) >= 3
    assert max(sizes) <= 9


def test_dirichlet_keeps_the_best_draw_where_ten_each_is_out_of_reach() -> None:
    y = labels(2000, 10)
    smallest = min(len(a) for a in assigned(make("dirichlet(0.09)", y, 40, 0)))
    assert 3 <= smallest < 10


def test_quantity_changes_sizes_and_not_labels() -> None:
    y = torch.arange(8000) % 4
    p = make("quantity(0.5)", y, 8, 0)
    sizes = torch.tensor([len(a) for a in assigned(p)])
    assert sizes.max() > 4 * sizes.min() >= 40
    large = sizes > 500
    assert (shares(p, y, 4)[large] - 0.25).abs().max() < 0.08


def test_by_a_column() -> None:
    y = torch.arange(12) % 2
    columns = {"ward": np.array(["b", "a", "a"] * 4), "no": np.array([10, 9, 9] * 4)}
    p = make("by(ward)", y, None, 0, columns)
    assert p.names == ("a", "b")
    assert rows_of(p)[1] == [0, 3, 6, 9]
    assert not p.label_shift_only
    assert make("by(column=no)", y, None, 0, columns).names == ("9", "10")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("dirichlett(1)", "unknown partition 'dirichlett': did you mean 'dirichlet'"),
        ("dirichlet", r"dirichlet needs a: write dirichlet\(a=0.5\)"),
        ("dirichlet(1, 2, 3)", "takes settings by name .2 at most without one., not 1, 2, 3"),
        ("iid(1)", "iid takes no settings: write it without brackets"),
        ("dirichlet(-1)", "must be above 0, not -1"),
        ("dirichlet-clients(0)", "must be above 0"),
        ("quantity(x)", "in quantity, a must be a number"),
        ("quantity(1e308)", "in quantity, a must be smaller than 3.4e.38, not 1e.308"),
        ("quantity(1e7)", r"a = 1e\+07 is past 1e6, where all shares are equal: use iid"),
        ("dirichlet(1, min=1000)", "min must be an integer from 3 to 50"),
        ("classes(0)", "from 1 to 4, not 0"),
        ("classes(99)", "from 1 to 4, not 99"),
        ("shards(x)", "in shards, s must be an integer, not 'x': write shards.s=2."),
        ("shards(100)", "100 examples cannot be cut into 200 shards"),
        ("by(ward)", "needs a table"),
        ("by", "by needs column: write by"),
    ],
)
def test_bad_specs_say_what_to_write(spec: str, message: str) -> None:
    with pytest.raises(GlocalError, match=message):
        make(spec, torch.arange(100) % 4, 2, 0)


def test_too_many_clients() -> None:
    with pytest.raises(GlocalError, match=r"too few for 40 clients.* ask for 33 clients or fewer"):
        make("iid", torch.arange(100) % 4, 40, 0)
    with pytest.raises(GlocalError, match="number of clients must be an integer"):
        make("iid", torch.arange(100) % 4, 0, 0)


def test_a_rare_class_that_leaves_a_client_empty_is_named() -> None:
    y = torch.tensor([0] * 98 + [1] * 2)
    with pytest.raises(GlocalError, match="would have an empty split"):
        make("classes(1)", y, 4, 0)


def test_sequences_have_no_class_to_deal_by() -> None:
    y = torch.arange(60).reshape(20, 3) % 2
    with pytest.raises(GlocalError, match="one label a row"):
        make("dirichlet(1)", y, 2, 0)
    assert [len(a) for a in assigned(make("iid", y, 2, 0))] == [10, 10]


def test_every_partition_has_a_line() -> None:
    listed = list_partitions()
    assert set(listed) == {
        *("iid", "shards", "classes", "dirichlet", "dirichlet-clients", "quantity", "by")
    }
    assert all(line.endswith(".") for line in listed.values())
