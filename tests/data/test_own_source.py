"""A data source of one's own: a function in a file that ``load`` and ``--data`` name."""

import pytest

import glocal
from glocal.core.errors import GlocalError

FILE = """
import numpy as np


def visits(days=30):
    clinic = np.arange(4 * days) % 4
    x = np.stack([clinic, np.arange(4 * days)], axis=1).astype("float32")
    return {"x": x, "y": (np.arange(4 * days) // 4) % 2, "clients": clinic}


def table(rows=60):
    ward = ["a", "b", "b"] * (rows // 3)
    return {
        "x": {"ward": ward, "age": list(range(rows)), "hospital": ["köln", "bonn"] * (rows // 2),
              "outcome": ["yes" if age > 30 else "no" for age in range(rows)]},
        "y": "outcome", "clients": "hospital",
    }


def pair():
    return [1.0], [0]


def surplus():
    return {**visits(), "weights": 3}


def broken():
    return 1 / 0
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(FILE, encoding="utf-8")


def test_arrays_with_clients_of_their_own(own):
    fed = glocal.load("own.py:visits(days=10)")
    assert len(fed) == 4
    assert fed.names == ("0", "1", "2", "3")
    assert sorted(float(v) for v in fed.x[:, 1]) == list(range(40))


def test_a_table_and_its_columns(own):
    fed = glocal.load("own.py:table")
    assert set(fed.names) == {"köln", "bonn"}
    assert {"age", "ward"} <= {column.column for column in fed.columns}


def test_without_clients_it_is_partitioned(own, tmp_path):
    bare = FILE + "\n\ndef bare():\n    return {k: v for k, v in visits().items() if k in 'xy'}\n"
    (tmp_path / "own.py").write_text(bare, encoding="utf-8")
    assert len(glocal.load("own.py:bare", clients=3, partition="iid")) == 3


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("own.py:pair", "must return a dict with x and y"),
        ("own.py:surplus", "must return a dict with x and y"),
        ("own.py:broken", "ZeroDivisionError: division by zero .in line"),
        ("own.py:visits(hours=3)", "unknown setting of own.py:visits 'hours'"),
        ("own.py:visit", "has no class or function visit"),
        ("other.py:visits", "there is no file"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(own, spec, said):
    with pytest.raises(GlocalError, match=said):
        glocal.load(spec)


def test_options_of_files_are_refused(own):
    with pytest.raises(GlocalError, match="label= names a column"):
        glocal.load("own.py:visits", label="outcome")
