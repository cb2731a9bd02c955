"""Tables as federations: columns, scaling by training rows, files of commas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from glocal.core.errors import GlocalError
from glocal.data.federation import federation
from glocal.data.loading import load


def table(n: int = 24) -> dict[str, Any]:
    return {
        "age": np.arange(n) * 1.0,
        "ward": ["north", "south", "east"] * (n // 3),
        "constant": [5] * n,
        "label": ["sick", "well"] * (n // 2),
        "site": [f"s{i % 4}" for i in range(n)],
    }


class Frame:
    """What a DataFrame looks like to us."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self.columns = list(data)

    def __getitem__(self, name: str) -> Any:
        return self.data[name]


@pytest.mark.parametrize("kind", [dict, Frame])
def test_a_table(kind: Any) -> None:
    fed = federation(kind(table()), "label", "site")
    assert fed.names == ("s0", "s1", "s2", "s3")
    assert fed.describe["labels"] == {"sick": 0, "well": 1}
    assert fed.describe["features"] == ["age", "ward=east", "ward=north", "ward=south"]
    assert fed.describe["categories"] == [(1, 4)]
    assert set(fed.x[:, 1:4].flatten().tolist()) == {0.0, 1.0}
    assert fed.x[:, 1:4].sum(1).tolist() == [1.0] * 24
    assert fed.describe["client_column"] == "site"


def test_numbers_are_scaled_by_the_training_rows_of_each_fold() -> None:
    base = federation(table(), "label", "site")
    for fed in (base, base.fold(2)):
        train = fed.x[fed.train.rows, 0]
        assert float(train.mean()) == pytest.approx(0, abs=1e-6)
        assert float(train.std(correction=0)) == pytest.approx(1, abs=1e-6)
    assert not torch.equal(base.x, base.fold(2).x)
    assert base.fold(2).fold(0).fingerprint == base.fingerprint
    raw = federation(table(), "label", "site", scale=False)
    assert raw.x[:, 0].tolist() == list(range(24))
    words = federation({c: table()[c] for c in ("ward", "label", "site")}, "label", "site")
    assert words.x.sum(1).tolist() == [1.0] * 24
    assert raw.x.dtype == words.x.dtype == base.x.dtype == torch.float32


def test_a_table_by_a_column() -> None:
    fed = federation(table(), "label", partition="by(ward)")
    assert fed.names == ("east", "north", "south")
    assert fed.describe["partition"] == "by(ward)"
    assert not any(f.startswith("ward") for f in fed.describe["features"])
    assert not fed.label_shift_only


def test_a_real_data_frame() -> None:
    import pandas

    frame = pandas.DataFrame(table())
    expected = federation(table(), "label", "site").fingerprint
    assert federation(frame, "label", "site").fingerprint == expected
    frame["age"] = frame["age"].astype("Int64")
    assert federation(frame, "label", "site").fingerprint == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"age": [1.0] * 23 + [np.inf]}, "column 'age' is not finite .* in row 23"),
        ({"ward": [["a"], ["b"]] * 12}, r"column 'ward' has shape \(24, 1\)"),
        ({"ward": [{"a"}] * 3 + ["b"] * 21}, "column 'ward' has {'a'} in row 0: give one value"),
        ({"label": ["a"] * 3 + [None] * 21}, "row 3 has no label in column 'label'"),
        ({"site": ["a"] * 3 + [None] * 21}, "row 3 has no client id"),
        ({"age": [1.0] * 5}, r"column 'age' has shape \(5,\) in a table of 24 rows"),
    ],
)
def test_bad_tables_say_what_to_do(change: dict[str, Any], message: str) -> None:
    with pytest.raises(GlocalError, match=message):
        federation({**{"ward": table()["ward"]}, **table(), **change}, "label", "site")


def test_more_bad_tables() -> None:
    with pytest.raises(GlocalError, match=r"no column 'lable' to take labels from: .* age, ward"):
        federation(table(), "lable", "site")
    with pytest.raises(GlocalError, match="the table has no rows"):
        federation({}, "label", "site")
    with pytest.raises(GlocalError, match="no columns are left"):
        federation({c: table()[c] for c in ("label", "site")}, "label", "site")
    ids = {**table(3000), "name": [f"person {i}" for i in range(3000)]}
    with pytest.raises(GlocalError, match="column 'name' has 2100 different words in 2100 train"):
        federation(ids, "label", "site", features=["age", "name"])
    assert "name" not in " ".join(federation(ids, "label", "site").describe["features"])
    objects = np.array([1, 2, 3] * 8, dtype=object)
    assert federation({**table(), "age": objects}, "label", "site").x.shape == (24, 4)


def write_csv(path: Path, columns: dict[str, Any]) -> str:
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values()))]  # noqa: B905
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


def test_csv_files(tmp_path: Path) -> None:
    columns = {("client" if c == "site" else c): v for c, v in table(60).items()}
    path = write_csv(tmp_path / "a.csv", columns)
    fed = load(path)
    assert fed.names == ("s0", "s1", "s2", "s3")
    assert fed.fingerprint == federation(table(60), "label", "site").fingerprint
    dealt = load(path, clients=3, partition="iid")
    assert len(dealt) == 3
    assert not any("client" in f for f in dealt.describe["features"])
    assert load(path, partition="by(client)").names == fed.names
    assert load(path, label="ward", client="label").names == ("sick", "well")
    del columns["client"]
    bare = write_csv(tmp_path / "b.csv", columns)
    assert load(bare, clients=4, partition="iid").describe["partition"] == "iid"
    with pytest.raises(GlocalError, match=r"b\.csv has no column 'client', so nothing says whose"):
        load(bare, clients=4)
    numbered = write_csv(tmp_path / "c.csv", {**columns, "client": [9, 10] * 30})
    assert load(numbered).names == ("9", "10")
