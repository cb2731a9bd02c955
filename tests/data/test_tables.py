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
from glocal.data.preprocessing.report import MOST_ROWS, rendered


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


def test_the_report_of_many_columns_is_short() -> None:
    wide: dict[str, Any] = {f"x{i:02d}": np.arange(24) % (i + 2) for i in range(40)}
    wide["gap"] = [None, 1.5, 2.5] * 8
    fed = federation({**table(), **wide}, "label", "site")
    lines = rendered(fed.columns).splitlines()
    assert len(fed.columns) == 46
    assert len(lines) == 1 + MOST_ROWS + 1
    assert lines[-1] == "  … and 16 columns more"
    assert any(line.split()[0] == "gap" and line.split()[-1] == "8" for line in lines)
    assert not any(line.endswith(" ") for line in lines)
    few = rendered(federation(table(), "label", "site").columns).splitlines()
    assert [line.split()[0] for line in few] == [
        "column",
        "label",
        "site",
        "age",
        "constant",
        "ward",
    ]


def test_one_cell_of_each_kind_decides_for_a_column() -> None:
    import datetime
    import decimal

    day = datetime.date(2024, 5, 1)
    cells: list[tuple[list[Any], str]] = [
        ([decimal.Decimal("1.5"), 2, None], "numbers"),
        ([True, False, None], "true or false"),
        ([day, datetime.datetime(2024, 5, 2, 12), None], "dates"),
        ([np.datetime64("2024-05-01"), np.datetime64("NaT"), np.datetime64("2024-05-03")], "dates"),
        ([b"a", b"b", b"a"], "words"),
        ([1, "one", 2.5], "words"),
        ([day, "tomorrow", 3], "words"),
    ]
    for values, was in cells:
        fed = federation({**table(), "cells": values * 8}, "label", "site")
        assert next(row for row in fed.columns if row.column == "cells").was == was
        assert bool(fed.x.isfinite().all())
    waited = np.array([1, 36, 5], "timedelta64[h]")
    fed = federation({**table(), "cells": np.tile(waited, 8)}, "label", "site")
    assert next(row for row in fed.columns if row.column == "cells").notes == ("in days",)
    assert fed.unsplit is not None
    assert fed.unsplit.x[:3, 1].tolist() == pytest.approx([1 / 24, 1.5, 5 / 24])
    with pytest.raises(GlocalError, match="column 'cells' holds complex128, which is neither"):
        federation({**table(), "cells": np.ones(24) * 1j}, "label", "site")
