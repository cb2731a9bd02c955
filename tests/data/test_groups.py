"""Groups: whole at one client and in one split of every fold, near the shares; every error."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import glocal
from glocal.core.errors import GlocalError
from glocal.data import groups
from glocal.data.federation import Federation, federation
from glocal.data.loading import load
from glocal.data.split import Split
from glocal.experiment.config import Config
from glocal.studies.newcomer import arrival
from glocal.training import poisoning

few = settings(max_examples=25, deadline=None)
SHARES = st.sampled_from(
    [(0.7, 0.1, 0.2), (0.5, 0.25, 0.25), (0.1, 0.1, 0.8), (0.3, 0.2, 0.5), (0.5, 0.2, 0.3)]
)


def grouped(sizes: list[list[int]], seed: int = 0, classes: int = 2, **more: Any) -> Federation:
    """A client for each list of its groups' sizes; rows are shuffled, labels drawn by group."""
    gen = np.random.default_rng(seed)
    rows = [
        (k, f"{k}/{g}", (g + int(gen.integers(4) == 0)) % classes)
        for k, of_client in enumerate(sizes)
        for g, size in enumerate(of_client)
        for _ in range(size)
    ]
    order = gen.permutation(len(rows))
    client, group, y = zip(*(rows[i] for i in order), strict=True)
    y = y if len(set(y)) > 1 else (1 - y[0], *y[1:])  # two classes, also where few rows are drawn
    x = np.arange(len(rows), dtype=np.float32)
    return federation(x, y, client, group=group, seed=seed, classes=classes, **more)


def parts(fed: Federation) -> tuple[Split, Split, Split]:
    return fed.train, fed.val, fed.test


def units(fed: Federation, rows: torch.Tensor) -> set[int]:
    assert fed.unit is not None
    return set(fed.unit[rows].tolist())


SIZES = st.lists(st.lists(st.integers(1, 9), min_size=3, max_size=12), min_size=1, max_size=3)


@few
@given(sizes=SIZES, seed=st.integers(0, 99), split=SHARES, fold=st.integers(0, 12))
def test_groups_are_whole_in_every_fold_and_no_split_is_empty(
    sizes: list[list[int]], seed: int, split: tuple[float, float, float], fold: int
) -> None:
    fed = grouped(sizes, seed, split=split).fold(fold)
    assert sorted(torch.cat([s.rows for s in parts(fed)]).tolist()) == list(range(len(fed.x)))
    for one, other in itertools.combinations(parts(fed), 2):
        assert not units(fed, one.rows) & units(fed, other.rows)
    assert all(int(s.counts().min()) >= 1 for s in parts(fed))
    for k in range(len(fed)):
        assert len(set.union(*(units(fed, s.of(k)) for s in parts(fed)))) == len(sizes[k])


@few
@given(sizes=SIZES, seed=st.integers(0, 99), split=SHARES)
def test_the_folds_of_a_cycle_test_on_different_groups(
    sizes: list[list[int]], seed: int, split: tuple[float, float, float]
) -> None:
    fed = grouped(sizes, seed, split=split)
    cycle = int(1 / split[2] + 1e-9)
    for k, of_client in enumerate(sizes):
        tested = [units(fed, fed.fold(r).test.of(k)) for r in range(min(cycle, len(of_client)))]
        assert all(not a & b for a, b in itertools.combinations(tested, 2))
        if split[2] == 0.2:  # five test sets are all there is
            assert len(set.union(*tested)) == len(of_client)


def test_another_cycle_has_other_test_sets() -> None:
    fed = grouped([[3] * 20])
    tested = {frozenset(units(fed, fed.fold(r).test.rows)) for r in range(10)}
    assert len(tested) == 10


@few
@given(seed=st.integers(0, 99), fold=st.integers(0, 9))
def test_shares_are_near_what_was_asked_for(seed: int, fold: int) -> None:
    sizes = np.random.default_rng(seed).integers(1, 12, 40).tolist()
    fed = grouped([sizes], seed).fold(fold)
    for split, share in zip(parts(fed), (0.7, 0.1, 0.2), strict=True):
        assert abs(len(split.rows) - share * sum(sizes)) <= 12


def test_splits_are_stratified_better_than_at_random() -> None:
    """Class shares of the test sets, against whole groups in random order cut at the share."""
    gen = np.random.default_rng(1)
    sizes = gen.integers(2, 8, 30).tolist()
    fed = grouped([sizes], 1, classes=3)
    assert fed.unit is not None
    overall = torch.bincount(fed.y, minlength=3) / len(fed.y)

    def distance(rows: torch.Tensor) -> float:
        return float((torch.bincount(fed.y[rows], minlength=3) / len(rows) - overall).abs().sum())

    def at_random() -> torch.Tensor:
        order = torch.from_numpy(gen.permutation(30))
        taken = order[torch.tensor(sizes)[order].cumsum(0) <= 0.2 * sum(sizes) + 2]
        return torch.isin(fed.unit, taken).nonzero().flatten()  # type: ignore[arg-type]

    ours = [distance(fed.fold(r).test.rows) for r in range(20)]
    theirs = [distance(at_random()) for _ in range(200)]
    assert np.mean(ours) < 0.6 * np.mean(theirs)


def test_one_huge_group_does_not_empty_a_split() -> None:
    for sizes in ([100, 1, 1], [1, 50, 1, 1], [60, 60, 1, 1, 1, 1]):
        fed = grouped([sizes])
        for r in range(6):
            assert all(len(s.rows) >= 1 for s in parts(fed.fold(r)))


def test_a_simulated_partition_assigns_whole_groups() -> None:
    gen = np.random.default_rng(0)
    group = np.repeat(np.arange(60), 5)
    one_label = np.repeat(gen.integers(0, 3, 60), 5)
    several = one_label.copy()
    several[::5] = (several[::5] + 1) % 3
    x = gen.normal(size=(300, 2)).astype(np.float32)
    for y in (one_label, several):
        fed = federation(x, y, 4, partition="dirichlet(1)", group=group)
        holders = [units(fed, torch.cat([s.of(k) for s in parts(fed)])) for k in range(4)]
        assert sum(map(len, holders)) == 60 == len(set.union(*holders)) == fed.describe["groups"]
        # With several labels in a group, clients differ in more than label shares.
        assert fed.label_shift_only is (y is one_label)
    assert federation(x, several, 4, partition="iid", group=group).label_shift_only
    with pytest.raises(GlocalError, match="60 groups are too few for 30 clients"):
        federation(x, one_label, 30, partition="iid", group=group)


def test_the_label_of_a_group_is_its_most_frequent_one() -> None:
    unit = torch.tensor([1, 0, 1, 2, 1, 2, 0])
    y = torch.tensor([5, 3, 4, 9, 5, 1, 3])
    labels, one = groups.labels_of(unit, y)
    assert (labels.tolist(), one) == ([3, 5, 1], False)
    assert groups.labels_of(unit, torch.tensor([1, 0, 1, 2, 1, 2, 0]))[1]
    sequences = torch.arange(14).view(7, 2)
    assert groups.labels_of(unit, sequences)[0].tolist() == [[2, 3], [0, 1], [6, 7]]


def test_errors_say_what_to_do() -> None:
    x, y = np.zeros((12, 1), np.float32), np.arange(12) % 2
    client, group = np.repeat([0, 1], 6), np.repeat(np.arange(6), 2)
    with pytest.raises(GlocalError, match=r"client '1' has 1 group, and groups are kept whole"):
        federation(x, y, client, group=np.where(client == 1, 9, group))
    with pytest.raises(GlocalError, match=r"group '2' has rows at clients '0' and '1'.*berlin-17"):
        federation(x, y, client, group=np.where(group == 3, 2, group))
    with pytest.raises(GlocalError, match="group has 3 ids for 12 rows"):
        federation(x, y, client, group=[1, 2, 3])
    with pytest.raises(GlocalError, match="row 1 has no group id"):
        federation(x, y, client, group=["a", None] * 6)
    with pytest.raises(GlocalError, match="group=3 is not one id for each row"):
        federation(x, y, client, group=3)
    with pytest.raises(GlocalError, match="names a column, but x is not a table"):
        federation(x, y, client, group="patient")


def csv(folder: Path) -> Path:
    lines = ["age,patient,site,label"]
    lines += [f"{i % 7}.5,p{i // 3},{'ab'[i // 30]},{i // 3 % 2}" for i in range(60)]
    path = folder / "visits.csv"
    path.write_text("\n".join(lines))
    return path


def test_groups_from_files(tmp_path: Path) -> None:
    path = csv(tmp_path)
    fed = load(path, client="site", group="patient")
    assert (fed.describe["groups"], fed.describe["features"]) == (20, ["age"])
    assert fed.unit is not None
    assert units(fed, fed.test.rows).isdisjoint(units(fed, fed.train.rows))
    arrays = {"x": fed.x.numpy(), "y": fed.y.numpy(), "group": fed.unit.numpy()}
    np.savez(tmp_path / "visits.npz", client=np.repeat([0, 1], 30), **arrays)
    same = load(tmp_path / "visits.npz")
    assert same.unit is not None
    assert set(same.test.rows.tolist()) == set(fed.test.rows.tolist())
    config = Config(data=str(path), client="site", group="patient")
    assert config.federation().fingerprint == fed.fingerprint
    with pytest.raises(GlocalError, match="no column 'person' for the groups: its columns are age"):
        load(path, client="site", group="person")
    with pytest.raises(GlocalError, match="group= names 'site', which holds the labels or the cl"):
        load(path, client="site", group="site")
    with pytest.raises(GlocalError, match="in the arrays y, client and group"):
        load(tmp_path / "visits.npz", group="patient")
    with pytest.raises(GlocalError, match=r"group= names a column of a \.csv file, and 'digits'"):
        load("digits", group="patient")
    said = r"client= names a column of a \.csv file, and 'digits' is none: .* is clients="
    for client in (6, "hospital"):
        with pytest.raises(GlocalError, match=said):
            glocal.load("digits", client=client)


def test_copies_of_a_federation_keep_the_groups() -> None:
    fed = grouped([[2] * 8, [3] * 6, [1] * 9], transforms=["pair-noise(0.5)"])
    copies = [fed.fold(3), fed.to("cpu"), poisoning.flipped(fed, (1,))]
    copies += [arrival.parts(fed, 1).old, arrival.parts(fed, 1).both]
    for copy in copies:
        assert copy.unit is not None
        assert fed.unit is not None
        assert torch.equal(copy.unit, fed.unit)


def test_training_with_groups() -> None:
    run = glocal.fit("fedavg", grouped([[4] * 6, [2] * 9]), rounds=1, model="mlp(4)")
    assert len(run.clients) == 2
