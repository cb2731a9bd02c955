"""Columns that may not be what they seem: read where that is safe, else a sentence about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from table_files import N, columns, loaded, report

from glocal.core.errors import GlocalError
from glocal.data.federation import federation
from glocal.data.preprocessing import Preprocessing
from glocal.data.preprocessing.doubts import gives_label_away


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def cycle(*cells: Any) -> list[Any]:
    return [cells[i % len(cells)] for i in range(N)]


def values(cells: list[Any], separator: str = ";") -> list[float]:
    """The numbers that a column is read as."""
    fed = loaded(columns(x=cells), separator)
    assert fed.unsplit is not None
    assert report(fed, "x").became.startswith("a number")
    return fed.unsplit.x[:, -1].tolist()


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (("TRUE", "False", "true"), (1, 0, 1)),
        (("€ 5.20", "€7.30", "-€1.10"), (5.2, 7.3, -1.1)),
        (("$5", "$1,234.50", "$7.25"), (5, 1234.5, 7.25)),
        (("5,20 €", "7,30 €", "1.234,50 €"), (5.2, 7.3, 1234.5)),
        (("1'234.5", "7", "12'000"), (1234.5, 7, 12000)),
        (("1\u00a0234,5", "7,25", "3"), (1234.5, 7.25, 3)),
        (("\u22123.2", "4", "0.5"), (-3.2, 4, 0.5)),
        (("1\u2019234", "\u22122", "7"), (1234, -2, 7)),
        (("05", "7", "112"), (5, 7, 112)),
    ],
)
def test_what_is_safe_to_read_is_read(cells: tuple[str, ...], numbers: tuple[float, ...]) -> None:
    assert values(cycle(*cells)) == cycle(*map(float, numbers))


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (("2024-03-01", "31.12.2023"), "holds dates in several forms, such as '2024-03-01' in"),
        (("13/02/2024", "02/13/2024", "01/02/2024"), "several forms, such as '13/02/2024' in line"),
        (("01.03.2024", "00.00.0000", "02.03.2024"), "dates, but '00.00.0000' in line 3 is none"),
        (("01.03.2024", "unbekannt", "02.03.2024"), "dates, but 'unbekannt' in line 3 is none"),
        (("24.11.23", "25.11.23"), "a form that is not read, such as '24.11.23' in line 2"),
        (("5 Mar 2021", "6 Mar 2021"), "a form that is not read, such as '5 Mar 2021' in line 2"),
        (("Dez. 2021", "Mai 2021"), "a form that is not read, such as 'Dez. 2021' in line 2"),
        (("10:30", "23:59"), "holds times of day, such as '10:30' in line 2"),
        (("$5.20", "€ 5.20"), "looks like numbers, but '$5.20' in line 2 is none"),
        (("1 234,5", "2 345"), "looks like numbers, but '1 234,5' in line 2 is none"),
        (("USD 5.20", "USD 7"), "looks like numbers, but 'USD 5.20' in line 2 is none"),
        (("True", "FALSE", "yes"), "looks like true or false, but 'yes' in line 4 is neither"),
        (("2024-03", "2024-04"), "a form that is not read, such as '2024-03' in line 2"),
    ],
)
def test_words_that_are_meant_as_something_else(cells: tuple[str, ...], said: str) -> None:
    row = report(loaded(columns(x=cycle(*cells)), ";"), "x")
    assert row.became == f"{len(cells)} one-hot features"
    assert said in row.warnings[0]
    assert ", so it was read as words: " in row.warnings[0]


def test_many_dates_that_cannot_be_read_are_left_out() -> None:
    days = [f"{1 + i % 28:02d}.{1 + i // 28:02d}.23" for i in range(N)]
    row = report(loaded(columns(x=days)), "x")
    assert row.became == "left out: dates in a form that is not read"
    assert "id or free text" not in row.warnings[0]
    for changed, became in (
        (["2024-03-01", *days[1:]], "dates in several forms"),
        (["unbekannt", *days[1:]], "not all are dates"),
        (
            [f"{1 + i % 12:02d}/{1 + i // 12:02d}/2023" for i in range(N)],
            "dates of which day and month cannot be told apart",
        ),
    ):
        assert report(loaded(columns(x=changed)), "x").became == f"left out: {became}"


def test_dates_are_no_ids_of_groups(capsys: pytest.CaptureFixture[str]) -> None:
    for days in (
        cycle("2024-03-01", "2024-03-02", "2024-03-03"),
        cycle("1.3.24", "2.3.24", "3.3.24"),
    ):
        loaded(columns(visit=days))
        assert "looks like an id" not in capsys.readouterr().err


def test_digits_with_zeros_in_front_are_codes() -> None:
    row = report(loaded(columns(x=cycle("10115", "01067", "80331"))), "x")
    assert row.became == "3 one-hot features"
    assert "holds digits with zeros in front, such as '01067' in line 3, and was" in row.warnings[0]


def test_numbers_as_text_in_a_frame() -> None:
    fed = federation(columns(x=cycle("007", "12", "5")), "outcome", "hospital")
    assert report(fed, "x").became == "3 one-hot features"
    assert "holds numbers as text, such as '007' in row 0" in report(fed, "x").warnings[0]


def test_true_and_false_in_new_rows() -> None:
    for fed in (
        loaded(columns(x=cycle("TRUE", "FALSE", "TRUE", "FALSE", ""))),
        federation(columns(x=cycle(True, False, None)), "outcome", "hospital"),
        federation(columns(x=cycle("true", "false")), "outcome", "hospital"),
    ):
        assert report(fed, "x").was == "true or false"
        assert fed.preprocessing is not None
        rows = [
            fed.preprocessing.apply({"age": 50, "dose": 1.0, "x": cell})
            for cell in (True, "TRUE", "True", "true", 1, "1")
        ]
        assert all(torch.equal(row, rows[0]) for row in rows)
        for cells in (["ja", True], [2, 1], [0.5, 1], ["-7", "0"], [2, None]):
            with pytest.raises(GlocalError, match=r"'x' should hold true or false, .* row 0 has"):
                fed.preprocessing.apply({"age": [50, 50], "dose": [1.0, 1.0], "x": cells})


def test_marks_of_missing_values_are_mentioned() -> None:
    lab = [-999 if i % 20 == 5 else 10 + i % 7 for i in range(N)]
    table = columns(
        lab=lab,
        weight=[9999 if i % 30 == 1 else 60.5 + i % 9 for i in range(N)],
        once=[-999, *(i % 10 for i in range(N - 1))],
        outlier=[999, *(i % 51 for i in range(N - 1))],
        age=[99 if i % 30 == 1 else 20 + 2 * (i % 35) for i in range(N)],
    )
    fed = loaded(table)
    assert report(fed, "lab").warnings == (
        "column 'lab' has -999 in 3 rows, such as line 7, far from all other numbers (10 … 16): "
        "leave those cells empty if it means that they are missing.",
    )
    assert "column 'weight' has 9999 in 2 rows" in report(fed, "weight").warnings[0]
    assert report(fed, "once").warnings == (
        "column 'once' has -999 in line 2, far from all other numbers (0 … 9): leave that cell "
        "empty if it means that it is missing.",
    )
    assert not report(fed, "outlier").warnings
    assert not report(fed, "age").warnings
    stay = loaded(columns(outcome=lab), task="regression")
    assert "column 'outcome' has -999 in 3 rows" in report(stay, "outcome").warnings[0]


def test_ids_by_any_name_and_dates_without_dots_are_mentioned() -> None:
    days = [20210101 + 100 * (i % 12) + i % 28 for i in range(N)]
    fed = loaded(columns(Fallnummer=[70001 + 13 * i for i in range(N)], admitted=days))
    assert "'Fallnummer' has another integer in every training row: leave it out" in " ".join(
        report(fed, "Fallnummer").warnings
    )
    said = "'admitted' looks like dates, such as 20210101 in line 2, and was read as numbers: write"
    assert said in report(fed, "admitted").warnings[0]
    other = report(loaded(columns(x=[*days[:-1], 20211350])), "x").warnings
    assert not any("dates" in warning for warning in other)


def test_ids_of_clients_stay_as_they_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert loaded(columns(hospital=cycle("007", "010", "120"))).names == ("007", "010", "120")
    assert loaded(columns(hospital=cycle(2, 10, 1))).names == ("1", "2", "10")
    fed = loaded(columns(hospital=cycle("1", "01", "1.0")))
    assert fed.names == ("01", "1", "1.0")
    assert "'hospital' has '01' and '1' (and 1 more such pair), which" in capsys.readouterr().err
    frame = federation(columns(hospital=cycle(" 007", "010 ", "1")), "outcome", "hospital")
    assert frame.names == ("007", "010", "1")


def test_labels_that_are_amounts() -> None:
    stays = columns(outcome=cycle(0, 1, 2, 5))
    assert report(loaded(stays), "outcome").warnings[0] == (
        "the label column 'outcome' holds integers, 0 … 5, which were read as 4 classes: say "
        "task='regression' or task='counts' if they are amounts, and task='classification' if not."
    )
    told = report(loaded(stays, task="classification"), "outcome").warnings
    assert not any("amounts" in warning for warning in told)
    with pytest.raises(GlocalError, match=r"such as '1,189' in line 2: say decimal="):
        loaded(columns(outcome=cycle("1,189", "2,250")), ";", task="regression")


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ([*cycle("yes", "no")[:-1], "-"], "'outcome' has '-' in 1 row (line 61), which was"),
        (
            [*cycle("yes", "no")[:-1], "y"],
            "class 'y' of the label column 'outcome' has 1 row (line",
        ),
        ([*cycle("1", "2")[:-1], "01"], "column 'outcome' has '01' and '1', which are taken for"),
    ],
)
def test_labels_that_may_be_slips(cells: list[str], said: str) -> None:
    fed = loaded(columns(outcome=cells))
    assert fed.classes == 3
    assert any(said in warning for warning in report(fed, "outcome").warnings)


@pytest.mark.parametrize(
    ("cells", "classes"),
    [
        (("TRUE", "false", "true", "False"), {"false": 0, "true": 1}),
        ((True, "false", "true"), {"false": 0, "true": 1}),
        (("TRUE", "FALSE"), {"FALSE": 0, "TRUE": 1}),
        (("True", "False"), {"False": 0, "True": 1}),
    ],
)
def test_labels_that_are_true_or_false(cells: tuple[Any, ...], classes: dict[str, int]) -> None:
    table = columns(outcome=cycle(*cells))
    for fed in (loaded(table), federation(table, "outcome", "hospital")):
        assert fed.describe["labels"] == classes
        assert fed.unsplit is not None
        assert fed.unsplit.y.tolist() == [
            int(str(cell).lower() == "true") for cell in cycle(*cells)
        ]
        assert not report(fed, "outcome").warnings


def test_labels_that_are_no_classes() -> None:
    days = [f"2024-03-{1 + i % 28:02d}" for i in range(N)]
    for cells, what in (
        ([f"w{i}" for i in range(N)], "60 different words in 60 rows, such as 'w0' in line 2"),
        (days, "28 different dates in 60 rows, such as '2024-03-01' in line 2"),
    ):
        with pytest.raises(GlocalError, match=f"the label column 'outcome' has {what}, which are"):
            loaded(columns(outcome=cells))
    assert loaded(columns(outcome=days), task="classification").classes == 28


def test_columns_that_give_the_label_away() -> None:
    outcome = cycle(0, 1, 1, 0, 1)
    table = columns(
        outcome=outcome,
        died=["yes" if y else "no" for y in outcome],
        almost=["yes" if y else "no" for y in outcome[:-1]] + ["no"],
        part=["a" if y else cycle("b", "c")[i] for i, y in enumerate(outcome)],
    )
    fed = loaded(table)
    assert "column 'died' gives the label away" in report(fed, "died").warnings[0]
    assert not report(fed, "almost").warnings
    assert not report(fed, "part").warnings
    rare = [0] * (N - 3) + [1] * 3
    same = report(loaded(columns(outcome=rare, x=["a"] * (N - 3) + ["b"] * 3)), "x")
    assert "gives the label away" in same.warnings[0]
    dose = columns()["dose"]
    units = columns(outcome=dose, copy=[1000 * d + 3 for d in dose], dose=[d + d * d for d in dose])
    fed = loaded(units, task="regression")
    assert "column 'copy' gives the label away: leave" in report(fed, "copy").warnings[0]
    assert not report(fed, "dose").warnings


def test_a_slip_does_not_hide_that_a_column_gives_the_label_away() -> None:
    n = 400
    label = np.arange(n) % 2
    stray = np.where(np.arange(n) == 7, 2, label)

    def exceptions(column: Any, labels: Any) -> int | None:
        return gives_label_away(np.asarray(column, float), labels, classes=True)

    assert exceptions(label, stray) == 1  # a class of one row, which has no value of its own
    assert exceptions(stray, label) == 1
    assert exceptions(stray, stray) == 0
    for wrong, found in ((2, 2), (4, 4), (5, None)):
        swapped = np.where(np.arange(n) < wrong, 1 - label, label)
        assert exceptions(swapped, label) == found
    seldom = (np.arange(n) < 4).astype(int)  # 1 % of the rows
    assert exceptions(np.zeros(n), seldom) is None
    assert exceptions(np.arange(n) % 3, label) is None
    assert exceptions(seldom, seldom) == 0
    tenth = (np.arange(n) < 40).astype(int)
    assert exceptions(np.arange(n) < 38, tenth) is None  # 5 % of a class


def test_numbers_far_from_those_in_training() -> None:
    fitted = loaded(columns(ward=cycle("a", "b"))).preprocessing
    assert fitted is not None
    rows = {"age": [50, 80, 1e30], "dose": [1.0, 3000.0, 2.0], "ward": ["a", "b", "new"]}
    assert fitted.far_numbers(rows) == {"age": "1e+30 in row 2", "dose": "3000 in row 1"}
    usual = {"age": [50, None], "dose": [1.0, 9.0], "ward": ["a", None]}
    assert fitted.far_numbers(usual) == {}
    assert Preprocessing.from_json(json.dumps(fitted.to_json())) == fitted
    plain = federation(columns(), "outcome", "hospital", scale=False).preprocessing
    assert plain is not None
    assert plain.far_numbers({"age": 1e9, "dose": 1.0}) == {}
