"""Fitted preprocessing: against arithmetic by hand, without a look at test rows, saved as JSON."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from glocal.core.errors import GlocalError
from glocal.data import client_data
from glocal.data.federation import Federation, federation
from glocal.data.preprocessing import statistics
from glocal.data.preprocessing.columns import Column
from glocal.data.preprocessing.fitted import Preprocessing
from glocal.studies.newcomer import arrival

N = 120


def table(seed: int = 0, n: int = N) -> dict[str, Any]:
    gen = np.random.default_rng(seed)
    age = gen.integers(20, 90, n).astype(float)
    age[gen.random(n) < 0.2] = np.nan
    ward = gen.choice(["north", "south", "east", ""], n, p=[0.5, 0.2, 0.2, 0.1])
    return {
        "age": age,
        "ward": [str(w) for w in ward],
        "dose": gen.lognormal(size=n),
        "admitted": [f"2024-{m:02d}-03" for m in gen.integers(1, 13, n)],
        "label": gen.integers(0, 2, n),
        "site": gen.choice(["a", "b", "c"], n),
    }


@pytest.fixture(scope="module")
def fed() -> Federation:
    return federation(table(), "label", "site")


def fitted(fed: Federation) -> Preprocessing:
    assert fed.preprocessing is not None
    return fed.preprocessing


def test_against_numpy_on_the_training_rows(fed: Federation) -> None:
    given, train = table(), fed.train.rows.numpy()
    names = fed.describe["features"]
    x = fed.x.double().numpy()

    def feature(name: str) -> Any:
        return x[:, names.index(name)]

    age = given["age"]
    seen = age[train][~np.isnan(age[train])]
    median = np.sort(seen)[(len(seen) - 1) // 2]
    expected = (np.where(np.isnan(age), median, age) - seen.mean()) / seen.std()
    np.testing.assert_allclose(feature("age"), expected, atol=1e-6)
    np.testing.assert_array_equal(feature("age is missing"), np.isnan(age))

    words = np.array(given["ward"])
    assert (np.unique(words[train][words[train] != ""], return_counts=True)[1].argmax()) == 1
    filled = np.where(words == "", "north", words)  # the most frequent
    for word in ("east", "north", "south"):
        np.testing.assert_array_equal(feature(f"ward={word}"), filled == word)
    np.testing.assert_array_equal(feature("ward is missing"), words == "")

    days = np.array(given["admitted"], "datetime64[D]").astype(float)
    expected = (days - days[train].mean()) / days[train].std()
    np.testing.assert_allclose(feature("admitted"), expected, atol=1e-5)
    assert fed.describe["categories"] == [(names.index("ward=east"), names.index("ward=south") + 1)]
    assert names == sorted(names, key=lambda name: name.split("=")[0].split(" is")[0])


def test_validation_and_test_rows_change_nothing_that_is_fitted(fed: Federation) -> None:
    data = fed.unsplit
    assert data is not None
    held = torch.cat([fed.val.rows, fed.test.rows])
    changed = data.x.clone()
    changed[held] = torch.where(changed[held].isnan(), 1.0, torch.nan).double()
    changed[held[:5], 0] = 1e6
    other = client_data.fold_of(replace(data, x=changed), 0)
    assert fitted(other) == fitted(fed)
    assert torch.equal(other.x[fed.train.rows], fed.x[fed.train.rows])
    assert not torch.equal(other.x, fed.x)
    changed[fed.train.rows[0], 0] = 1e6
    assert fitted(client_data.fold_of(replace(data, x=changed), 0)) != fitted(fed)


def test_the_layout_has_nothing_of_other_rows() -> None:
    """A word, and a gap, that only test rows have: no feature, and the word is all zeros."""
    given = table()
    fed = federation({c: given[c] for c in ("dose", "label", "site")}, "label", "site")
    words = np.array(["x", "y"] * (N // 2), dtype=object)
    words[fed.test.rows[:3].numpy()] = "z"
    words[fed.test.rows[3].item()] = None
    raw_columns = {**{c: given[c] for c in ("dose", "label", "site")}, "word": words}
    from glocal.data import own_table
    from glocal.data.table import as_table

    raw = own_table.raw_features(as_table(raw_columns), ["label", "site"], (), ())
    data = fed.unsplit
    assert data is not None
    data = replace(data, x=raw.x)
    data = own_table.with_layout(data, fed.train.rows, raw, (), scale=True, by_client=False)
    other = client_data.fold_of(data, 0)
    assert other.describe["features"] == ["dose", "word=x", "word=y"]
    assert other.x[fed.test.rows[:3], 1:].abs().sum() == 0
    assert other.x[fed.test.rows[3], 1:].sum() == 1


def test_every_fold_is_fitted_anew_with_the_same_features(fed: Federation) -> None:
    other = fed.fold(1)
    assert other.describe["features"] == fed.describe["features"]
    assert fitted(other).columns[1].mean != fitted(fed).columns[1].mean
    train = other.x[other.train.rows, other.describe["features"].index("dose")]
    assert float(train.mean()) == pytest.approx(0, abs=1e-6)
    assert fitted(other.fold(0)) == fitted(fed)


def test_a_level_without_training_rows_in_a_fold_stays_zero() -> None:
    def with_a_rare_word(row: int) -> Federation:
        words = ["north", "south"] * (N // 2)
        words[row] = "rare"
        return federation({**table(), "ward": words}, "label", "site")

    row, base = next(
        (row, made)
        for row in range(N)
        if "ward=rare" in (made := with_a_rare_word(row)).describe["features"]
    )
    trained = []
    for r in range(5):  # in one of which it is a test row
        fold = base.fold(r)
        rare = fold.x[:, fold.describe["features"].index("ward=rare")]
        trained.append(bool((fold.train.rows == row).any()))
        assert bool(rare[row] == 1) == trained[-1]
        assert int(rare.sum()) == trained[-1]
        assert fold.preprocessing is not None
        assert ("rare" in fold.preprocessing.columns[-1].unseen) != trained[-1]
    assert trained[0]
    assert not all(trained)


def test_statistics_of_each_client() -> None:
    given = table()
    fed = federation(given, "label", "site", preprocessing="client")
    pre = fitted(fed)
    assert pre.clients == ("a", "b", "c")
    dose = fed.describe["features"].index("dose")
    for k in range(3):
        rows = fed.train.of(k)
        assert float(fed.x[rows, dose].mean()) == pytest.approx(0, abs=1e-6)
        assert float(fed.x[rows, dose].std(correction=0)) == pytest.approx(1, abs=1e-5)
        mine = fed.test.of(k).tolist()
        new = {c: [v[i] for i in mine] for c, v in given.items()}
        assert torch.equal(pre.apply(new, client="abc"[k]), fed.x[mine])
    with pytest.raises(GlocalError, match="say whose rows these are"):
        pre.apply(given)
    with pytest.raises(GlocalError, match="unknown client 'd'"):
        pre.apply(given, client="d")
    assert Preprocessing.from_json(json.dumps(pre.to_json())) == pre
    with pytest.raises(GlocalError, match="preprocessing='own' should be 'federated'"):
        federation(given, "label", "site", preprocessing="own")


@pytest.mark.parametrize("clients", [1, 7])
def test_the_sum_of_clients_sums_is_the_statistic_of_all(clients: int) -> None:
    gen = np.random.default_rng(clients)
    for values in (
        gen.normal(size=501),
        gen.normal(size=500) * 1e9 + 3e9,
        np.array([2.0]),
        np.repeat([1.0, 5.0, 1e30], [40, 41, 30]),
        gen.integers(0, 5, 1000).astype(float),
    ):
        mean, std = statistics.mean_and_std(values, gen.integers(clients, size=len(values)), 9)
        assert mean == pytest.approx(values.mean(), rel=1e-12)
        assert std == pytest.approx(values.std() or 1.0, rel=1e-9)
        lower = np.sort(values)[(len(values) - 1) // 2]
        assert statistics.median(values) == pytest.approx(lower, rel=1e-9, abs=1e-9 * std)
    assert statistics.mean_and_std(np.full(9, 4.0), np.zeros(9, np.int64), 1) == (4.0, 1.0)
    assert statistics.most_frequent(np.array([2.0, 0, 0, 2, -1, -1, -1]), 3) == 0


def test_raw_rows_in_many_forms(fed: Federation) -> None:
    import pandas

    pre, given = fitted(fed), table()
    again = Preprocessing.from_json(json.dumps(pre.to_json()))
    assert again == pre
    assert torch.equal(again.apply(given), fed.x)
    assert torch.equal(again.apply(pandas.DataFrame(given)), fed.x)
    row = {c: v[7] for c, v in given.items() if c not in ("label", "site")}
    assert torch.equal(again.apply(row), fed.x[7:8])
    text = {c: [str(v) for v in values] for c, values in given.items()}
    assert torch.equal(again.apply(text), fed.x)  # "nan" is a gap
    dates = pandas.DataFrame({**given, "admitted": pandas.to_datetime(given["admitted"])})
    assert torch.equal(again.apply(dates), fed.x)


def test_what_new_rows_get(fed: Federation) -> None:
    pre = fitted(fed)
    row = {"age": 50, "ward": "north", "dose": 1.0, "admitted": "2024-01-03", "more": "ignored"}
    names = pre.features
    new = pre.apply({**row, "ward": "west"})[0]
    assert all(float(new[names.index(f"ward={w}")]) == 0 for w in ("east", "north", "south"))
    assert pre.unknown_words({**row, "ward": "west"}) == {"ward": ["west"]}
    assert pre.unknown_words(row) == {}
    grouped = Preprocessing((Column("ward", "category", levels=("east",), other=True),))
    assert grouped.unknown_words({"ward": ["east", "west", None]}) == {"ward": ["west"]}
    for change, message in [
        ({"age": "old"}, "column 'age' should hold numbers, as in training, and row 0 has 'old'"),
        ({"age": float("inf")}, "column 'age' is not finite"),
        ({"admitted": "yesterday"}, "column 'admitted' should hold dates"),
        ({"admitted": 3.5}, "column 'admitted' should hold dates"),
        ({"ward": ["north"]}, "column 'age' has shape"),
    ]:
        with pytest.raises(GlocalError, match=message):
            pre.apply({**row, **change})
    del row["dose"]
    with pytest.raises(GlocalError, match="the rows have no column 'dose', with which the model"):
        pre.apply(row)
    for nothing in (3, None, [1, 2], "age"):
        with pytest.raises(GlocalError, match="is no row of a table"):
            pre.apply(nothing)


def test_damaged_json_is_refused(fed: Federation) -> None:
    good = fitted(fed).to_json()
    changes: list[Any] = ["", "[", 3, None, {}, {**good, "version": 2}, {**good, "columns": []}]
    for key, value in [
        ("kind", "picture"),
        ("std", [0.0]),
        ("std", ["1"]),
        ("mean", [1.0, 2.0]),
        ("fill", [float("nan")]),
        ("levels", [1]),
        ("extra", 1),
        ("indicator", "yes"),
    ]:
        other = copy.deepcopy(good)
        other["columns"][0][key] = value
        changes.append(other)
    word = copy.deepcopy(good)
    word["columns"][-1]["fill"] = [17.0]
    changes.append(word)
    for change in changes:
        with pytest.raises(GlocalError, match="the saved preprocessing is damaged"):
            Preprocessing.from_json(change)


def test_rare_words_are_one_feature() -> None:
    gen = np.random.default_rng(0)
    given = {**table(), "code": [f"c{i:02d}" for i in gen.integers(0, 40, N)]}
    fed = federation(given, "label", "site")
    codes = [name for name in fed.describe["features"] if name.startswith("code=")]
    assert len(codes) == 31
    assert codes[-1] == "code=(other)"
    at = fed.describe["features"].index(codes[0])
    assert fed.x[:, at : at + 31].sum(1).tolist() == [1.0] * N
    counts = fed.x[fed.train.rows, at : at + 30].sum(0)
    words = np.array(given["code"])[fed.train.rows.numpy()]
    every = np.sort(np.unique(words, return_counts=True)[1])[::-1]
    assert sorted(counts.tolist(), reverse=True) == every[:30].tolist()
    row = {c: v[0] for c, v in given.items()} | {"code": "never seen"}
    assert float(fitted(fed).apply(row)[0, at + 30]) == 1


def test_a_newcomer_has_no_say_in_the_statistics() -> None:
    given = table()
    fed = federation(given, "label", "site")
    parts = arrival.parts(fed, "c")
    given["dose"] = np.where(given["site"] == "c", 1e3, given["dose"])
    changed = federation(given, "label", "site")
    dose = fed.describe["features"].index("dose")
    rows = torch.cat([fed.train.of(0), fed.train.of(1)])
    train = parts.old.x[rows, dose]
    assert float(train.mean()) == pytest.approx(0, abs=1e-6)
    assert parts.old.preprocessing != fed.preprocessing
    assert arrival.parts(changed, "c").old.names == ("a", "b")
