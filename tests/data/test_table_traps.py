"""Traps of real tables: each ends in a warning or a refusal that names the column."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from table_files import N, columns, loaded, report

import glocal
from glocal.core.errors import GlocalError
from glocal.core.progress import notes_once
from glocal.data.federation import federation
from glocal.data.loading import load


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_no_client_column() -> None:
    table = columns()
    del table["hospital"]
    with pytest.raises(
        GlocalError, match=r"t\.csv has no column 'client'.* \(there are age, dose\)"
    ):
        loaded(table, client="client")
    assert loaded(table, client="client", partition="iid", clients=3).names == ("0", "1", "2")
    with pytest.raises(GlocalError, match="client= and label= name the same column, 'outcome'"):
        loaded(table, client="outcome")


def test_a_number_of_clients_that_are_not_there() -> None:
    for more in ({}, {"partition": "by(hospital)"}):
        assert len(loaded(columns(), clients=3, **more)) == 3
        with pytest.raises(
            GlocalError,
            match=r"t\.csv has 3 clients of its own, by column 'hospital', so there cannot be 5",
        ):
            loaded(columns(), clients=5, **more)


def test_words_that_differ_in_case_alone_are_mentioned(capsys: pytest.CaptureFixture[str]) -> None:
    wards = [("ICU", "icu", "surgery")[i % 3] for i in range(N)]
    names = [("Ulm", "Graz", "ulm")[i % 3] for i in range(N)]
    outcome = [("yes", "no", "Yes")[i % 3 if i < 30 else i % 2] for i in range(N)]
    fed = loaded(columns(ward=wards, hospital=names, outcome=outcome))
    err = capsys.readouterr().err
    for column, pair in (("ward", "'ICU' and 'icu'"), ("hospital", "'Ulm' and 'ulm'")):
        said = (
            f"column {column!r} has words that differ in upper and lower case alone, such as {pair}"
        )
        assert said in err
        assert report(fed, column).warnings[0].startswith(said)
    assert "column 'outcome' has words that differ in upper and lower case alone" in err
    assert fed.classes == 3


def test_blanks_around_words_are_no_part_of_them() -> None:
    table = columns(
        ward=[("a", " a", "b ", "b")[i % 4] for i in range(N)],
        hospital=[(" h1", "h1 ", "h2")[i % 3] for i in range(N)],
        outcome=[("yes", "no ", "yes ")[i % 3] for i in range(N)],
    )
    fed = federation(table, "outcome", "hospital")
    assert fed.names == ("h1", "h2")
    assert fed.describe["labels"] == {"no": 0, "yes": 1}
    assert {"ward=a", "ward=b"} < set(fed.describe["features"])
    assert not any("=a " in f or "= a" in f for f in fed.describe["features"])


def test_units_in_cells(capsys: pytest.CaptureFixture[str]) -> None:
    weights = [f"{60 + i % 9}.5 kg" for i in range(N)]
    fed = loaded(columns(weight=[*weights[:-1], "NA"], fat=[f"{i % 9},5%" for i in range(N)]), ";")
    said = "column 'weight' holds numbers with a unit, such as '60.5 kg' in line 2, and was read as"
    assert said in capsys.readouterr().err
    assert report(fed, "weight").warnings[0].startswith(said)
    assert (report(fed, "weight").notes, report(fed, "fat").notes) == (("in kg",), ("in %",))
    assert fed.unsplit is not None
    fat, weight = fed.unsplit.x[:, -2].tolist(), fed.unsplit.x[:, -1].tolist()
    assert weight[:-1] == [60.5 + i % 9 for i in range(N - 1)]
    assert np.isnan(weight[-1])
    assert fat == [i % 9 + 0.5 for i in range(N)]
    assert fed.preprocessing is not None
    row = {"age": 50, "dose": 1, "fat": "3,5%", "weight": "61.5 kg"}
    assert torch.equal(
        fed.preprocessing.apply(row), fed.preprocessing.apply({**row, "fat": 3.5, "weight": 61.5})
    )
    with pytest.raises(
        GlocalError,
        match="'weight' should hold numbers in kg, as in training, and row 0 has '61 lb'",
    ):
        fed.preprocessing.apply({**row, "weight": "61 lb"})


def test_units_in_a_frame() -> None:
    table = columns(weight=[f"{60 + i % 9}.5 kg" for i in range(N)], code=["007", "1"] * (N // 2))
    fed = federation(table, "outcome", "hospital")
    assert (report(fed, "weight").became, report(fed, "weight").notes) == ("a number", ("in kg",))
    assert report(fed, "code").became == "2 one-hot features"


def test_numbers_that_cannot_be_read() -> None:
    few = loaded(columns(lab=[*[40 + i % 20 for i in range(N - 2)], "<5", "low"]))
    assert report(few, "lab").became.endswith("one-hot features")
    warning = report(few, "lab").warnings[0]
    assert "'low' in line 61 is none, so it was read as words: if it is" in warning
    assert not report(few, "dose").warnings
    many = {
        "lab": [*range(40, 98), "<5", "low"],
        "mass": [f"{i} {'kg' * (i % 2)}" for i in range(N)],
    }
    fed = loaded(columns(**many, ward=[f"{1 + i % 4}b" for i in range(N)]))
    assert (
        report(fed, "lab").became == report(fed, "mass").became == "left out: not all are numbers"
    )
    assert "column 'lab' looks like numbers, but 'low' in line 61 is none; it has" in " ".join(
        report(fed, "lab").warnings
    )
    assert report(fed, "ward").became == "4 one-hot features"


def test_decimal_commas() -> None:
    fed = loaded(columns(dose=[f"{i % 7},5" for i in range(N)]), ";")
    assert (report(fed, "dose").was, report(fed, "dose").notes) == ("numbers", ("decimal commas",))
    assert "dose" in fed.describe["features"]
    unclear = columns(dose=[f"{1 + i % 7},{234 + i % 9}" for i in range(N)])
    warning = report(loaded(unclear, ";"), "dose").warnings[0]
    assert warning.startswith(
        "column 'dose' holds numbers whose decimal mark cannot be told, such as '1,234' in line 2"
    )
    assert "say decimal=',' or decimal='.'" in warning
    assert fed.unsplit is not None
    for mark, factor in ((",", 1000), (".", 1)):
        told = loaded(unclear, ";", decimal=mark)
        assert told.unsplit is not None
        assert float(told.unsplit.x[0, 1]) * factor == 1234
        assert not any("looks like" in warning for warning in report(told, "dose").warnings)


def test_labels_one_and_two(capsys: pytest.CaptureFixture[str]) -> None:
    fed = loaded(columns(outcome=[1 + i // 3 % 2 for i in range(N)]))
    assert (fed.classes, fed.describe["labels"]) == (2, {"1": 0, "2": 1})
    assert "the labels of column 'outcome' are 1, 2, not 0, 1" in capsys.readouterr().err
    assert federation(columns(outcome=[-1, 1] * 30), "outcome", "hospital").classes == 2
    assert federation(columns(outcome=[1, 2] * 30), "outcome", "hospital", classes=3).classes == 3


def test_float_labels() -> None:
    fed = loaded(columns(outcome=[float(i // 3 % 2) for i in range(N)]))
    assert fed.classes == 2
    assert "'outcome' holds floats, such as 0.0" in report(fed, "outcome").warnings[0]
    with pytest.raises(GlocalError, match=r"'outcome' holds 60 different numbers, such as 0\.5"):
        loaded(columns(outcome=[i / 2 + 0.5 for i in range(N)]))
    with pytest.raises(GlocalError, match="in column 'outcome': line 2 has"):
        loaded(columns(outcome=[2**70] + [0, 1] * 29 + [0]))


def test_a_gap_is_no_class_and_no_client() -> None:
    table = columns(outcome=["no", "yes", "no"] * (N // 3))
    for column, message in (
        ("outcome", "has no label in column 'outcome'"),
        ("hospital", "has no cl"),
    ):
        gaps = [*table[column][:-1], "NA"]
        with pytest.raises(GlocalError, match=f"line {N + 1} {message}"):
            loaded({**table, column: gaps})
        with pytest.raises(GlocalError, match=f"row {N - 1} {message}"):
            federation({**table, column: gaps}, "outcome", "hospital")


def test_length_of_stay() -> None:
    stays = columns(outcome=[i // 3 for i in range(N)])
    with pytest.raises(
        GlocalError, match=r"column 'outcome' holds 20 different numbers.*task='regression'"
    ):
        loaded(stays)
    assert loaded(stays, task="classification").classes == 20
    fed = loaded(stays, task="regression")
    assert report(fed, "outcome").became == "the label, a number"
    assert fed.target.task == "regression"


def test_dates(capsys: pytest.CaptureFixture[str]) -> None:
    forms = {
        "iso": [f"2024-03-{1 + i % 28:02d}" for i in range(N)],
        "german": [f"{1 + i % 28}.03.2024" for i in range(N)],
        "us": [f"3/{1 + i % 28}/2024" for i in range(N)],
        "time": [f"2024-03-{1 + i % 28:02d} 06:00:00+06:00" for i in range(N)],
    }
    fed = loaded(columns(**forms))
    assert fed.unsplit is not None
    names = [row.column for row in fed.columns if row.column not in ("outcome", "hospital")]
    for form in forms:
        days = fed.unsplit.x[:, names.index(form)]
        first = (np.datetime64("2024-03-01") - np.datetime64("1970-01-01")).astype(int)
        assert days.tolist() == [float(first + i % 28) for i in range(N)]
        assert f"column '{form}' holds dates" in report(fed, form).warnings[0]
    err = capsys.readouterr().err
    assert all(f"column '{form}' holds dates" in err for form in forms)
    unclear = loaded(columns(day=[f"0{1 + i % 9}/03/2024" for i in range(N)]))
    assert "day and month cannot be told apart" in report(unclear, "day").warnings[0]


def test_ids_constants_and_free_text() -> None:
    table = columns(
        patient_id=[1000 + 7 * i for i in range(N)],
        note=[f"saw {i} today" for i in range(N)],
        unit=["mg"] * N,
        nothing=[""] * N,
        row=list(range(N)),
    )
    fed = loaded(table)
    assert fed.describe["features"] == ["age", "dose", "row"]
    became = {row.column: row.became for row in fed.columns}
    assert became["patient_id"] == "left out: an id"
    assert became["note"] == "left out: an id or free text"
    assert (became["unit"], became["nothing"]) == ("left out: constant", "left out: empty")
    assert "column 'row' counts the rows" in report(fed, "row").warnings[0]
    asked = loaded(table, features=["patient_id,age"], drop=())
    assert asked.describe["features"] == ["age", "patient_id"]
    assert loaded(table, drop=["row", "dose"]).describe["features"] == ["age"]
    with pytest.raises(
        GlocalError, match=r"no columns are left as features: .*'unit' \(left out: c"
    ):
        loaded(table, features=["unit", "nothing"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"drop": ["aeg"]}, "drop= names 'aeg', which is no column: the columns are age, dose"),
        ({"features": ["age", "aeg"]}, "features= names 'aeg', which is no column"),
        ({"features": ["outcome"]}, "features= names 'outcome', which holds labels"),
        ({"drop": ["hospital"]}, "drop= names 'hospital', which holds labels, clients or groups"),
        ({"features": ["age"], "drop": ["age"]}, "features= names 'age', which drop= names, too"),
        ({"preprocessing": "mine"}, "preprocessing='mine' should be 'federated'"),
    ],
)
def test_options_that_name_no_columns(options: dict[str, Any], message: str) -> None:
    with pytest.raises(GlocalError, match=message):
        loaded(columns(), **options)


def test_options_of_tables_go_with_tables() -> None:
    with pytest.raises(GlocalError, match="drop= names columns of a table, and 'digits' is none"):
        load("digits", drop=["a"])
    with pytest.raises(GlocalError, match="features= names columns, but x is not a table"):
        federation(torch.zeros(12, 2), [0, 1] * 6, [0, 1] * 6, features=["a"])


@pytest.mark.parametrize("partition", [None, "dirichlet(1.0)"])
def test_the_order_of_rows_and_columns_changes_nothing(partition: str | None) -> None:
    table = columns(ward=["n", "s", ""] * (N // 3), outcome=[i // 3 % 2 for i in range(N)])
    table["age"][5] = table["age"][50] = None
    for name in ("age", "dose", "ward", "outcome"):  # the same rows at two clients
        table[name][:9] = table[name][10:19]
    order = list(range(N))
    random.Random(1).shuffle(order)
    shuffled = {c: [table[c][i] for i in order] for c in reversed(table)}
    noise = ["symmetric-noise(0.3)"]
    one, other = (
        federation(
            {c: v for c, v in t.items() if partition is None or c != "hospital"},
            "outcome",
            "hospital" if partition is None else 2,
            partition=partition,
            transforms=noise,
        )
        for t in (table, shuffled)
    )
    assert one.preprocessing == other.preprocessing
    for a, b in zip((one, one.fold(1)), (other, other.fold(1)), strict=True):
        for mine, theirs in zip(a, b, strict=True):
            for part in ("train", "val", "test"):
                for x, y in zip(getattr(mine, part), getattr(theirs, part), strict=True):
                    assert torch.equal(x, y)
    asked: Any = {"rounds": 2, "model": "mlp(4)", "metric": "auc", "tune": False}
    if partition is not None:
        asked |= {"metric": None, "baseline": "same"}
    results = [glocal.fit("fedavg", f, repeats=2, **asked) for f in (one, other)]
    assert results[0].clients == results[1].clients
    assert results[0].summary == results[1].summary


def test_the_order_of_groups_changes_nothing() -> None:
    table = columns(patient=[f"p{i // 4}" for i in range(N)])
    table["hospital"] = [f"h{i // 20}" for i in range(N)]
    order = random.Random(2).sample(range(N), N)
    shuffled = {c: [v[i] for i in order] for c, v in table.items()}
    one, other = (federation(t, "outcome", "hospital", group="patient") for t in (table, shuffled))
    for mine, theirs in zip(one, other, strict=True):
        assert torch.equal(mine.train[0], theirs.train[0])
        assert torch.equal(mine.test[1], theirs.test[1])


def test_mangled_tables_end_in_a_federation_or_in_a_sentence() -> None:
    """A few; ``benchmarks/mangled_tables.py`` tries 500, through the command line."""
    file = Path(__file__).parents[2] / "benchmarks" / "mangled_tables.py"
    spec = importlib.util.spec_from_file_location("mangled_tables", file)
    assert spec is not None
    assert spec.loader is not None
    mangled = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mangled)
    taken, said = 0, list[str]()
    for seed in range(80):
        Path("d.csv").write_bytes(mangled.table(seed))
        try:
            fed = load("d.csv")
            assert bool(fed.x.isfinite().all())
            taken += 1
        except GlocalError as error:
            said.append(str(error))
    assert all("\n" not in each and len(each) < 1000 for each in said)
    assert 10 < taken < 70


def test_small_clients_are_left_out_if_asked(capsys: pytest.CaptureFixture[str]) -> None:
    hospitals = ["tiny", *(f"h{i % 3}" for i in range(N - 1))]
    table = columns(hospital=hospitals, outcome=["oops", *(["yes", "no"] * N)[: N - 1]])
    said = r"client 'tiny' would have an empty split: it has 1 example.* with min_examples=3, or"
    with pytest.raises(GlocalError, match=said):
        loaded(table)
    fed = loaded(table, min_examples=3)
    assert (fed.names, fed.classes, len(fed.y)) == (("h0", "h1", "h2"), 2, N - 1)
    assert fed.describe["left_out_clients"] == {"tiny": 1}
    note = "glocal: clients with fewer than 3 examples were left out: 'tiny' (1).\n"
    assert note in capsys.readouterr().err
    rest = {name: cells[1:] for name, cells in table.items()}
    assert fed.fingerprint == loaded(rest).fingerprint
    without = {name: cells for name, cells in table.items() if name not in ("hospital", "outcome")}
    again = federation(without, table["outcome"], hospitals, min_examples=3)
    assert again.fingerprint == fed.fingerprint
    x, y = torch.randn(N, 2), [0, 1] * (N // 2)
    assert federation(x, y, hospitals, min_examples=3)[0].train[0].shape[1] == 2
    with pytest.raises(GlocalError, match=f"row {N - 1} has no label"):
        federation(
            {**table, "outcome": [*table["outcome"][:-1], None]},
            "outcome",
            "hospital",
            min_examples=3,
        )
    assert (
        "by(hospital)" in loaded(table, partition="by(hospital)", min_examples=3).describe.values()
    )
    with pytest.raises(GlocalError, match="these are simulated: leave it out"):
        loaded(table, partition="iid", clients=3, min_examples=3)
    with pytest.raises(GlocalError, match="no client has the 99 examples of min_examples=99"):
        loaded(table, min_examples=99)


def test_groups_count_as_one_example() -> None:
    hospitals = ["h0"] * 30 + ["h1"] * 20 + ["few"] * 10
    patients = [f"p{i // 2}" if i < 50 else f"q{i % 2}" for i in range(N)]
    table = columns(hospital=hospitals, patient=patients)
    with pytest.raises(
        GlocalError, match=r"client 'few' has 2 groups.* with min_examples=3, merge"
    ):
        loaded(table, group="patient")
    assert loaded(table, group="patient", min_examples=3).names == ("h0", "h1")


def test_every_load_says_what_is_doubtful(capsys: pytest.CaptureFixture[str]) -> None:
    table = columns(day=["2024-03-01", "2024-03-02"] * (N // 2))
    for _ in range(2):
        loaded(table)
        assert capsys.readouterr().err.count("column 'day' holds dates") == 1
    with notes_once():
        loaded(table)
        loaded(table)
    assert capsys.readouterr().err.count("column 'day' holds dates") == 1
