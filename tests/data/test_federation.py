"""Federations: how clients are cut, folds, own arrays and tables, files; every error."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glocal.core.errors import GlocalError
from glocal.data.datasets.registry import SOURCES
from glocal.data.federation import Federation, federation
from glocal.data.loading import load
from glocal.data.split import Split, arcs

few = settings(max_examples=25, deadline=None)


def own(n: int = 120, clients: int = 4, classes: int = 3, seed: int = 0, **more: Any) -> Federation:
    """Rows whose only feature is their number, dealt unevenly among clients."""
    gen = np.random.default_rng(seed)
    y = gen.integers(0, classes, n)
    ids = gen.integers(0, clients, n) * gen.integers(0, 2, n)
    ids[: 3 * clients] = np.arange(3 * clients) % clients
    y[:2] = [0, 1]
    x = np.arange(n, dtype=np.float32)
    return federation(x, y, ids, **{"seed": seed, "classes": classes, **more})


def parts(fed: Federation) -> tuple[Split, Split, Split]:
    return fed.train, fed.val, fed.test


SHARES = st.sampled_from([(0.7, 0.1, 0.2), (0.5, 0.25, 0.25), (0.1, 0.1, 0.8), (0.8, 0.1, 0.1)])


@few
@given(n=st.integers(12, 300), seed=st.integers(0, 99), split=SHARES, fold=st.integers(0, 30))
def test_splits_are_disjoint_covering_and_never_empty(
    n: int, seed: int, split: tuple[float, float, float], fold: int
) -> None:
    fed = own(n, 4, seed=seed, split=split).fold(fold)
    rows = torch.cat([s.rows for s in parts(fed)])
    assert sorted(rows.tolist()) == list(range(n))
    assert all(int(s.counts().min()) >= 1 for s in parts(fed))


@few
@given(n=st.integers(20, 300), seed=st.integers(0, 99), split=SHARES)
def test_consecutive_folds_test_on_different_examples(
    n: int, seed: int, split: tuple[float, float, float]
) -> None:
    fed = own(n, 3, seed=seed, split=split)
    folds = [fed.fold(r) for r in range(int(1 / split[2] + 1e-9))]
    for k in range(len(fed)):
        total = sum(len(s.of(k)) for s in parts(fed))
        tested = torch.cat([f.test.of(k) for f in folds[:total]]).tolist()
        assert len(tested) == len(set(tested)) == len(folds[:total]) * len(fed.test.of(k))


def test_folds_keep_clients_and_sizes_and_then_begin_a_new_cycle() -> None:
    fed = own(200, 1)
    folds = [fed.fold(r) for r in range(10)]
    for f in folds:
        assert f.names == fed.names
        assert f.train.counts().tolist() == [140]
        assert f.val.counts().tolist() == [20]
    assert {tuple(f.test.rows.tolist()) for f in folds[:5]}.isdisjoint(
        tuple(f.test.rows.tolist()) for f in folds[5:]
    )
    assert sorted(torch.cat([f.test.rows for f in folds[5:]]).tolist()) == list(range(200))
    assert folds[7].describe["fold"] == 7


def test_fold_zero_is_the_own_split_whichever_fold_asks() -> None:
    fed = own()
    assert fed.fold(0).fingerprint == fed.fingerprint
    assert fed.fold(3).fold(0).fingerprint == fed.fingerprint
    assert fed.fold(1).fingerprint != fed.fingerprint


@few
@given(n=st.integers(30, 400), seed=st.integers(0, 99), fold=st.integers(0, 5))
def test_every_split_has_the_label_shares_of_its_client(n: int, seed: int, fold: int) -> None:
    """An arc of m of n holds m·n_c/n of class c, give or take (1−s) + s(C−1) with s = n_c/n."""
    C = 3
    fed = own(n, 3, classes=C, seed=seed).fold(fold)
    for k in range(len(fed)):
        rows = torch.cat([s.of(k) for s in parts(fed)])
        share = torch.bincount(fed.y[rows], minlength=C).double() / len(rows)
        bound = (1 - share) + share * (C - 1)
        for split in parts(fed):
            got = torch.bincount(fed.y[split.of(k)], minlength=C)
            assert ((got - share * len(split.of(k))).abs() <= bound + 1e-9).all()


def test_label_shares_of_the_digits_are_within_two() -> None:
    fed = load("digits", clients=20)
    for k in range(20):
        rows = torch.cat([s.of(k) for s in parts(fed)])
        share = torch.bincount(fed.y[rows], minlength=10).double() / len(rows)
        got = torch.bincount(fed.y[fed.test.of(k)], minlength=10)
        assert (got - share * len(fed.test.of(k))).abs().max() <= 2


def test_arc_sizes_by_hand() -> None:
    counts = torch.tensor([3, 4, 5, 12, 14, 100])
    test, val = arcs(counts, (0.7, 0.1, 0.2))
    # 14 × .2 rounds to 3, but five arcs of 3 do not fit on a circle of 14.
    assert test.tolist() == [1, 1, 1, 2, 2, 20]
    assert val.tolist() == [1, 1, 1, 1, 1, 10]
    test, val = arcs(torch.tensor([3, 10]), (0.1, 0.1, 0.8))
    assert (test.tolist(), val.tolist()) == ([1, 8], [1, 1])


def test_same_seed_same_split() -> None:
    assert own(seed=1).fingerprint == own(seed=1).fingerprint
    fed = own(seed=1)
    other = federation(fed.x, fed.y, fed_ids(fed), seed=2, classes=3)
    assert sorted(other.test.of(0).tolist()) != sorted(fed.test.of(0).tolist())


def fed_ids(fed: Federation) -> list[int]:
    ids = [0] * len(fed.y)
    for k in range(len(fed)):
        for split in parts(fed):
            for row in split.of(k).tolist():
                ids[row] = k
    return ids


def test_a_client_does_not_depend_on_the_others() -> None:
    """Client 0 is cut alike with and without client 1: draws are keyed by client."""
    y = torch.arange(60) % 3
    both = federation(torch.arange(60.0), y, [0] * 30 + [1] * 30)
    alone = federation(torch.arange(30.0), y[:30], [0] * 30)
    assert both.test.of(0).tolist() == alone.test.of(0).tolist()


def test_it_is_a_sequence_of_clients() -> None:
    fed = own()
    x, y = fed[1].train
    assert x.dtype == torch.float32
    assert y.dtype == torch.int64
    assert torch.equal(fed.y[x[:, 0].long()], y)
    assert fed[-1].name == fed.names[-1]
    assert [c.name for c in fed] == list(fed.names)
    assert len(list(fed)) == len(fed) == 4
    for out in (4, -5):
        with pytest.raises(IndexError):
            fed[out]


def test_it_moves_and_pickles() -> None:
    fed = own()
    meta = fed.to("meta")
    assert meta.x.device.type == meta.test.start.device.type == "meta"
    moved = fed.to("cpu")
    assert moved.fingerprint == fed.fingerprint
    assert moved.fold(2).fingerprint == fed.fold(2).fingerprint
    assert fed.fold(2).x is fed.x
    assert pickle.loads(pickle.dumps(fed)).fold(1).fingerprint == fed.fold(1).fingerprint


def test_ready_made_splits_are_the_same_in_every_fold() -> None:
    fed = own()
    made = replace(fed, unsplit=None)
    assert made.fold(1) is made
    with pytest.raises(GlocalError, match="the fold must be an integer"):
        fed.fold(-1)


def test_the_description_is_json() -> None:
    fed = load("digits", clients=5, partition="classes(2)", seed=3, transforms=["pair-noise(.1)"])
    about = json.loads(json.dumps(fed.describe))
    assert about == {
        "data": "digits",
        "n": 1797,
        "classes": 10,
        "clients": 5,
        "partition": "classes(2)",
        "leftovers": 0,
        "split": [0.7, 0.1, 0.2],
        "seed": 3,
        "fold": 0,
        "transforms": ["pair-noise(.1)"],
    }


def test_digits() -> None:
    fed = load("digits")
    assert fed.x.shape == (1797, 1, 8, 8)
    assert (float(fed.x.min()), float(fed.x.max())) == (0.0, 1.0)
    assert len(fed) == 20
    assert fed.label_shift_only
    assert fed.describe["partition"] == "dirichlet(0.3)"
    assert "digits" in SOURCES


def test_a_thousand_clients() -> None:
    y = torch.arange(60_000) % 10
    fed = federation(torch.zeros(60_000, 1), y, torch.arange(60_000) % 1000)
    assert fed.test.counts().tolist() == [12] * 1000


@pytest.mark.parametrize(
    ("ids", "names"),
    [
        ([10, 9, 100], ("9", "10", "100")),
        (["b", "a", "é"], ("a", "b", "é")),
        ([("x", 2), ("x", 1), ("w", 3)], ("('w', 3)", "('x', 1)", "('x', 2)")),
        (np.array([2, 1, 3], np.int16), ("1", "2", "3")),
        (torch.tensor([2, 1, 3]), ("1", "2", "3")),
        ([np.int64(2), 10, 1], ("1", "2", "10")),
    ],
)
def test_client_ids_of_many_kinds(ids: Any, names: tuple[str, ...]) -> None:
    each = ids * 4 if isinstance(ids, list) else ids[[0, 1, 2] * 4]
    fed = federation(torch.zeros(12, 2), [0, 1] * 6, each)
    assert fed.names == names
    assert not fed.label_shift_only
    assert fed.describe["partition"] == "own ids"


def test_kinds_of_features_and_labels() -> None:
    ids = [0, 1] * 6
    words = federation(np.zeros((12, 2)), ["no", "yes", "no"] * 4, ids)
    assert words.describe["labels"] == {"no": 0, "yes": 1}
    assert words.y.tolist() == [0, 1, 0] * 4
    assert words.x.dtype == torch.float32
    tokens = federation(np.ones((12, 5), np.int32), np.ones((12, 5), int) * [0, 1, 2, 3, 4], ids)
    assert tokens.x.dtype == torch.int64
    assert tokens.classes == 5
    assert tokens[0].train[1].shape[1:] == (5,)
    pixels = federation(np.ones((12, 3), np.uint8), np.array([0.0, 1.0] * 6), ids)
    assert pixels.x.dtype == torch.float32
    assert pixels.y.dtype == torch.int64
    assert federation([[0.5]] * 12, [True, False, True] * 4, ids, classes=7).classes == 7
    counted = federation(torch.zeros(40, 1), [0, 1] * 20, 4, partition="iid")
    assert len(counted) == 4
    assert counted.label_shift_only


OK: dict[str, Any] = {"x": np.zeros((12, 2)), "y": [0, 1] * 6, "clients": [0, 1] * 6}
BAD_X = np.zeros((12, 2))
BAD_X[7, 1] = np.nan


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": BAD_X}, r"x is not finite \(NaN or infinite\) in row 7"),
        ({"x": np.full((12, 2), 1e39)}, "not finite .* in row 0"),
        ({"x": [["a"]] * 12}, "give a table"),
        ({"x": [[1.0], [1.0, 2.0]] * 6}, "differ in length"),
        ({"x": np.zeros((0, 2)), "y": [], "clients": []}, "no rows"),
        ({"x": np.zeros((11, 2))}, "x has 11 rows and y has 12"),
        ({"y": None}, "y is missing"),
        ({"y": []}, "y has no rows"),
        ({"y": [0, 1, -1] * 4}, "labels out of range: row 2 has -1"),
        ({"y": [0, 1, 0.5] * 4}, "y holds 3 different numbers, such as 0.5"),
        ({"y": [0, 1, float("nan")] * 4}, "row 2 has no label"),
        ({"y": [0, 1, 5] * 4, "classes": 5}, "row 2 has 5, but classes=5, .* from 0 to 4"),
        ({"y": ["a", "b", None] * 4}, "row 2 has no label"),
        ({"y": ["a", "b", ""] * 4}, "row 2 has no label"),
        ({"y": [3] * 12}, "fewer than 2 classes"),
        ({"classes": 1}, "classes must be an integer from 2 to"),
        ({"clients": [0, 1] * 5}, "10 ids for 12 rows"),
        ({"clients": [0, None] * 6}, "row 1 has no client id"),
        (
            {"clients": [0] * 10 + [7] * 2},
            "client '7' would have an empty split: it has 2 examples",
        ),
        ({"clients": [0] * 10 + [7, 8]}, r"client '7' \(and 1 client more\)"),
        ({"clients": None}, "the clients of the rows are missing"),
        ({"clients": 3}, "the clients of the rows are missing"),
        ({"clients": 2.5}, "neither a number of clients nor one id"),
        ({"clients": 5, "partition": "iid"}, "too few for 5 clients"),
        ({"partition": "iid"}, "not both"),
        ({"clients": "site"}, "names a column, but x is not a table"),
        ({"clients": None, "partition": "by(site)"}, "needs a table"),
        ({"split": (0.7, 0.3)}, "three positive shares"),
        ({"split": (0.8, 0.2, 0.0)}, "three positive shares"),
        ({"split": (0.7, 0.2, 0.2)}, "sums to 1.1"),
        ({"seed": -1}, "the seed must be an integer"),
    ],
)
def test_bad_arrays_say_what_to_do(change: dict[str, Any], message: str) -> None:
    with pytest.raises(GlocalError, match=message):
        federation(**{**OK, **change})


def test_npz_files(tmp_path: Path) -> None:
    x, y, ids = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2, np.arange(60) % 3
    np.savez(tmp_path / "a.npz", x=x, y=y, client=ids)
    fed = load(str(tmp_path / "a.npz"))
    assert fed.fingerprint == federation(x, y, ids).fingerprint
    assert len(load(str(tmp_path / "a.npz"), clients=5, partition="iid")) == 5
    np.savez(tmp_path / "b.npz", x=x, y=y)
    assert len(load(str(tmp_path / "b.npz"), clients=4, partition="iid")) == 4
    with pytest.raises(GlocalError, match=r"b\.npz has no array client, so nothing says whose"):
        load(str(tmp_path / "b.npz"), clients=4)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gone.csv", None, "there is no file"),
        ("a.csv", b"", "no rows"),
        ("a.csv", b"label,client\n", "no rows"),
        ("a.csv", b"x,y\n1,2\n", "no column 'label' for the labels: its columns are x, y"),
        ("a.csv", b"label,x\n1,2\n1\n", "1 cells in line 3 and 2 columns"),
        ("a.csv", b"label,label\n1,2\n", "names a column twice"),
        ("a.csv", b"\xff\xfe\x00", "not a readable .csv file"),
        ("a.csv", b'label,x\n"1,2\n', "not a readable .csv file"),
        ("a.csv", b"label,x\n" + b"0,1\n1,inf\n" * 30, "has no column 'client', so nothing says"),
        ("a.csv", b"label,client,x\n" + b"0,a,1\n1,a,inf\n" * 30, "not finite .* in line 3"),
        ("a.npz", b"not a zip", "not a readable .npz file"),
        ("a.npz", b"PK\x03\x04broken", "not a readable .npz file"),
        ("a.npz", b"", "not a readable .npz file"),
    ],
)
def test_bad_files_say_what_to_do(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(GlocalError, match=message):
        load(str(tmp_path / name))


def test_npz_with_other_arrays_or_pickles(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", features=np.zeros(3))
    with pytest.raises(GlocalError, match="needs the arrays x and y and has features"):
        load(str(tmp_path / "a.npz"))
    np.savez(tmp_path / "b.npz", x=np.zeros(3), y=np.array([{}], dtype=object))
    with pytest.raises(GlocalError, match="without object arrays"):
        load(str(tmp_path / "b.npz"))
    with (tmp_path / "c.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(GlocalError, match=r"not a readable .npz file"):
        load(str(tmp_path / "c.npz"))


def test_an_unknown_name() -> None:
    with pytest.raises(GlocalError, match=r"did you mean 'digits'.* or the path of a .csv or .npz"):
        load("digit")


def test_ids_in_an_array_are_as_good_as_in_a_list() -> None:
    ids = [30, 4, -7, 30, 4, -7, -7, 4, 30] * 2
    x, y = torch.arange(18.0)[:, None], torch.arange(18) % 2
    feds = [federation(x, y, clients=given) for given in (ids, torch.tensor(ids), np.array(ids))]
    for fed in feds[1:]:
        assert fed.names == feds[0].names == ("-7", "4", "30")
        assert fed.fingerprint == feds[0].fingerprint


def test_a_federation_is_shown_in_one_line() -> None:
    x, ids = torch.randn(40, 300), [0, 1, 2, 3] * 10
    fed = federation(x, [0, 1] * 20, ids)
    assert repr(fed) == "<Federation of 'own data': 4 clients, 40 rows, 2 classes>"
    assert repr(fed[1]) == "<ClientData of '1': 7 training, 1 validation, 2 test rows>"
    assert len(repr(fed.unsplit)) < 100
    numbers = federation(x, torch.rand(40), ids, task="regression")
    assert repr(numbers) == "<Federation of 'own data': 4 clients, 40 rows, for regression>"
