"""Protected attributes: where they come from, where they go with their rows, what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import glocal
from glocal.core.errors import GlocalError
from glocal.data.federation import Federation
from glocal.data.schema import Schema
from glocal.engines.lanes import SideBySide

N = 48
TABLE: dict[str, list[Any]] = {
    "age": [20.0 + i for i in range(N)],
    "size": [(7 * i) % 13 / 2 for i in range(N)],
    "sex": ["f" if i % 3 else "m" for i in range(N)],
    "origin": [i % 4 for i in range(N)],
    "site": ["abc"[i % 3] for i in range(N)],
    "label": [int(i % 5 == 0) for i in range(N)],
}


def made(table: dict[str, list[Any]] | None = None, **given: Any) -> Federation:
    settings = {"protected": ["sex", "origin"], **given}
    return glocal.federation(table or TABLE, y="label", clients="site", **settings)


def sexes(fed: Federation) -> list[str]:
    assert fed.attributes is not None
    place = fed.attributes.names.index("sex")
    return [fed.attributes.values[place][code] for code in fed.attributes.codes[:, place]]


def test_columns_of_a_table_are_attributes_and_no_features() -> None:
    fed = made()
    assert fed.attributes is not None
    assert fed.attributes.values == (("f", "m"), ("0", "1", "2", "3"))
    assert fed.attributes.sizes == (2, 4)
    assert sexes(fed) == TABLE["sex"]
    assert fed.describe["features"] == ["age", "size"]
    assert fed.describe["protected"] == {"sex": ["f", "m"], "origin": ["0", "1", "2", "3"]}
    assert [c.became for c in fed.columns if c.column == "sex"] == ["protected: no feature"]
    assert Schema.of(fed).attributes == (("sex", 2), ("origin", 4))
    assert made(protected="sex,origin").attributes is not None


def test_arrays_come_with_values() -> None:
    x, owner = torch.randn(N, 2), [i % 3 for i in range(N)]
    fed = glocal.federation(x, TABLE["label"], owner, protected={"sex": TABLE["sex"]})
    assert sexes(fed) == TABLE["sex"]
    few = glocal.federation(
        x[:41], TABLE["label"][:41], [*owner[:40], 9], protected={"sex": TABLE["sex"][:41]},
        min_examples=3,
    )  # fmt: skip
    assert sexes(few) == TABLE["sex"][:40]


def test_they_stay_with_their_rows() -> None:
    fed = made()
    batch = fed.batch(fed.train.of(1), torch.ones(len(fed.train.of(1))))
    assert fed.attributes is not None
    assert torch.equal(batch["attributes"], fed.attributes.codes[fed.train.of(1)])
    assert sexes(fed.fold(1)) == TABLE["sex"]
    assert fed.fingerprint != made(protected=["sex"], drop=["origin"]).fingerprint
    both = SideBySide.of([fed, replace(fed.fold(1), x=fed.x + 1)]).whole
    assert both.attributes is not None
    assert sexes(both) == [*TABLE["sex"], *TABLE["sex"]]
    part = fed.part([2, 0])
    assert part.attributes is not None
    assert torch.equal(
        part.attributes.codes[part.train.of(0)], fed.attributes.codes[fed.train.of(2)]
    )
    without = made(protected=(), drop=["sex", "origin"])
    assert without.attributes is None
    assert set(without.examples) == {"x", "y"}


def test_the_order_of_rows_changes_nothing_where_only_they_differ() -> None:
    """Rows that are equal but for sex are split the same way, however the table is sorted."""
    table = {
        **TABLE,
        "age": [1.0] * N,
        "size": [i % 2 + 0.0 for i in range(N)],
        "label": [0, 1] * 24,
    }
    order = [(5 * i) % N for i in range(N)]
    shuffled = {name: [cells[i] for i in order] for name, cells in table.items()}
    counts = []
    for rows in (table, shuffled):
        fed = made(rows)
        assert fed.attributes is not None
        counts.append([fed.attributes.codes[s.of(k)].sum(0).tolist() for s in (fed.train, fed.test)
                       for k in range(3)])  # fmt: skip
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    ("changes", "given", "problem"),
    [
        ({}, {"protected": ["gender"]}, "protected= names 'gender', which is no column"),
        ({}, {"protected": ["label"]}, "protected= names 'label', which holds labels, clients"),
        ({}, {"features": ["sex", "age"]}, "features= names 'sex', which protected= names, too"),
        ({}, {"drop": ["sex"]}, "drop= names 'sex'"),
        ({}, {"protected": {"sex": [1] * N}}, "protected= names the columns of a table"),
        ({"sex": ["m"] * N}, {}, "'sex' is 'm' in every row, so there is nothing to hide"),
        ({"sex": [None, *TABLE["sex"][1:-1], ""]}, {}, "'sex' is missing in 2 of 48 rows, first"),
        ({"sex": list(range(N))}, {}, r"'sex' has 48 values \(0, 1, 2, …\), and at most 20"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    changes: dict[str, Any], given: dict[str, Any], problem: str
) -> None:
    with pytest.raises(GlocalError, match=problem):
        made({**TABLE, **changes}, **given)


def test_arrays_without_values_are_one_sentence() -> None:
    x, y, owner = torch.randn(N, 2), TABLE["label"], [i % 3 for i in range(N)]
    with pytest.raises(GlocalError, match="names columns, but x is not a table: give the values"):
        glocal.federation(x, y, owner, protected=["sex"])
    with pytest.raises(GlocalError, match=r"'sex' has shape \(3,\) for 48 rows: give one value"):
        glocal.federation(x, y, owner, protected={"sex": [1, 2, 3]})
    with pytest.raises(GlocalError, match="protected= names columns of a table, and 'digits'"):
        glocal.load("digits", protected=["sex"])
