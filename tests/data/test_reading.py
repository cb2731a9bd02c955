"""Files as people have them: separators, decimal commas, encodings, Excel, Parquet, Feather."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glocal.core.errors import GlocalError
from glocal.data.federation import Federation, federation
from glocal.data.loading import load
from glocal.data.preprocessing.kinds import recognised
from glocal.data.reading import read_table
from glocal.data.table import as_table

N = 30
COLUMNS = {
    "größe": [150 + i / 4 for i in range(N)],
    "station": ["Süd", "Nord", "Ost"] * (N // 3),
    "tag": [f"2024-03-{1 + i % 28:02d}" for i in range(N)],
    "label": [i * 7 % 5 % 2 for i in range(N)],
    "client": ["a", "b", "c"] * (N // 3),
}


def text(separator: str = ",", decimal: str = ".", **changes: list[Any]) -> str:
    columns = {**COLUMNS, **changes}
    quoted = [
        [str(v).replace(".", decimal) if isinstance(v, float) else str(v) for v in row]
        for row in zip(*columns.values(), strict=True)
    ]
    lines = [separator.join(columns), *(separator.join(row) for row in quoted)]
    return "\n".join(lines) + "\n"


def loaded(content: str | bytes, **options: Any) -> Federation:
    Path("t.csv").write_bytes(content.encode() if isinstance(content, str) else content)
    return load("t.csv", **options)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def expected() -> str:
    return federation(COLUMNS, "label", "client").fingerprint


@pytest.mark.parametrize(
    ("content", "notes"),
    [
        (text(), []),
        (text(";", ","), ["the separator is a semicolon"]),
        (text("\t", ","), ["the separator is a tab"]),
        (text("|"), ["the separator is a bar"]),
        (text().encode("utf-8-sig"), []),
        (text().encode("utf-16"), ["read as utf-16"]),
        (text().encode("cp1252"), ["read as Windows-1252 (cp1252)"]),
        (text().replace("\n", "\r\n"), []),
        (text().replace("\n", "\r"), []),
        (text().replace("\n", "\n\n"), []),
        (text(";").replace("\n", ";\n"), ["the separator is a semicolon"]),
        (text() + ",,,,\n", []),
        ("sep=;\r\n" + text(";"), ["the separator is a semicolon"]),
        ('"sep=,"\n' + text(), []),
    ],
    ids=range(14),
)
def test_separator_decimal_mark_and_encoding_are_found(
    content: str | bytes, notes: list[str], expected: str
) -> None:
    fed = loaded(content)
    assert fed.fingerprint == expected
    assert fed.describe.get("read", []) == notes


def test_what_is_said_goes_before_what_is_found(expected: str) -> None:
    said = {"separator": "~", "decimal": ",", "encoding": "latin-1"}
    assert loaded(text("~", ",").encode("latin-1"), **said).fingerprint == expected
    assert loaded(text("\t"), separator="tab").fingerprint == expected
    for options, message in [
        ({"separator": ";;"}, "separator= is one character"),
        ({"decimal": ";"}, "decimal= is the decimal mark"),
        ({"encoding": "klingon"}, "there is no encoding 'klingon'"),
        ({"encoding": "base64"}, "is not encoded in 'base64'"),
        ({"encoding": "ascii"}, "is not encoded in 'ascii'"),
        ({"separator": ";"}, "has no column 'label'"),
    ]:
        with pytest.raises(GlocalError, match=message):
            loaded(text(), **options)
    with pytest.raises(
        GlocalError, match=r"decimal= says how a .csv file is written, and 'digits'"
    ):
        load("digits", decimal=",")


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["1,5", "20", "3,25"], [1.5, 20, 3.25]),
        (["1.234,5", "2.000", "7"], [1234.5, 2000, 7]),
        (["1,234.5", "2,000", "7"], [1234.5, 2000, 7]),
        (["0,125", "1,250", "7"], [0.125, 1.25, 7]),
        (["1e3", "-.5", "+2."], [1000, -0.5, 2]),
        (["NA", "", "3"], [np.nan, np.nan, 3]),
    ],
)
def test_numbers_as_people_write_them(cells: list[str], numbers: list[float]) -> None:
    fed = loaded(text(";", größe=[cells[i % 3] for i in range(N)]))
    assert fed.unsplit is not None
    given = fed.unsplit.x[:, 0].numpy()
    np.testing.assert_array_equal(given, np.tile(numbers, N // 3))


def test_thousands_or_decimals_must_be_said(capsys: pytest.CaptureFixture[str]) -> None:
    cells = [f"{1 + i % 9},250" for i in range(N)]
    fed = loaded(text(";", größe=cells))
    assert fed.columns[2].was == "words"
    assert (
        "column 'größe' holds numbers whose decimal mark cannot be told, such as '1,250' in line 2"
        in capsys.readouterr().err
    )
    for mark, scale in ((",", 1), (".", 1000)):
        said = loaded(text(";", größe=cells), decimal=mark)
        assert said.unsplit is not None
        assert float(said.unsplit.x[0, 0]) == 1.25 * scale


def test_lines_of_a_file_are_counted_as_an_editor_does() -> None:
    first, *rows = text().splitlines()
    rows[1] = rows[1].replace("Nord", '"Nord\nund mehr"')
    rows.insert(3, "")
    rows[6] = rows[6].rsplit(",", 1)[0] + ","
    line = "\n".join([first, *rows]).splitlines().index(rows[6]) + 1
    with pytest.raises(GlocalError, match=f"line {line} has no client id"):
        loaded("\n".join([first, *rows]))


def test_files_that_are_no_tables() -> None:
    Path("a.parquet").write_bytes(b"PAR1 not")
    Path("a.xlsx").write_bytes(b"PK\x03\x04 not")
    for name, package in (("a.parquet", "pyarrow"), ("a.xlsx", "openpyxl")):
        try:
            __import__(package)
            message = "is not a readable"
        except ImportError:
            message = f"needs the package {package}, which is not installed: run pip install"
        with pytest.raises(GlocalError, match=message):
            load(name)
    Path("a.doc").write_bytes(b"x")
    with pytest.raises(GlocalError, match="is not a kind of table"):
        read_table("a.doc")
    Path("folder").mkdir()
    for name, said in (
        ("a.doc", "'a.doc' is not a kind of file that can be read: give a file that ends in .csv"),
        ("folder", "the folder 'folder' has no data of a known layout: give LEAF's JSON"),
    ):
        with pytest.raises(GlocalError, match=said):
            load(name, label="outcome")
    with pytest.raises(GlocalError, match="unknown data set 'gone'"):
        load("gone", label="outcome")
    with pytest.raises(GlocalError, match=r"there is no file 'gone.xlsx'"):
        load("gone.xlsx")
    with pytest.raises(GlocalError, match=r"encoding= says how a .csv file is written"):
        load("a.xlsx", encoding="utf-8")


def test_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, package, extra in (("a.feather", "pyarrow", "parquet"), ("a.xlsx", "openpyxl", "ex")):
        Path(name).write_bytes(b"x")
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(GlocalError, match=rf"pip install 'glocal\[{extra}.*save .* as \.csv"):
            load(name)


@pytest.mark.parametrize("suffix", ["parquet", "feather"])
def test_arrow_files(suffix: str, expected: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import feather, parquet

    days = [datetime.date.fromisoformat(day) for day in COLUMNS["tag"]]
    table = arrow.table({**COLUMNS, "tag": days})
    station = table.column("station").dictionary_encode()
    table = table.set_column(1, "station", station)
    write = parquet.write_table if suffix == "parquet" else feather.write_feather
    write(table, f"t.{suffix}")
    assert load(f"t.{suffix}").fingerprint == expected
    gaps = table.append_column("flag", arrow.array([True, None, False] * (N // 3)))
    gaps = gaps.append_column("count", arrow.array([1, None, 3] * (N // 3)))
    write(gaps, f"t.{suffix}")
    fed = load(f"t.{suffix}")
    assert {"count", "count is missing", "flag", "flag is missing"} <= {*fed.describe["features"]}
    write(table.append_column("list", arrow.array([[1]] * N)), f"t.{suffix}")
    with pytest.raises(GlocalError, match=r"column 'list' of .* has lists or records in its cells"):
        load(f"t.{suffix}")


def test_excel_files(expected: str) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    sheet = book.active
    days = [datetime.datetime.fromisoformat(day) for day in COLUMNS["tag"]]
    columns = {**COLUMNS, "tag": days}
    sheet.append([])
    sheet.append(list(columns))
    for row in zip(*columns.values(), strict=True):
        sheet.append(row)
    sheet.append([None])
    book.save("t.xlsx")
    assert load("t.xlsx").fingerprint == expected
    sheet["E7"] = None
    book.create_sheet("more")
    book.save("t.xlsx")
    with pytest.raises(GlocalError, match="line 7 has no client id"):
        load("t.xlsx")


def test_a_polars_frame(expected: str) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(COLUMNS).with_columns(polars.col("tag").str.to_date())
    assert federation(frame, "label", "client").fingerprint == expected
    categorical = frame.with_columns(polars.col("station").cast(polars.Categorical))
    assert federation(categorical, "label", "client").fingerprint == expected
    with pytest.raises(GlocalError, match=r"LazyFrame has no rows yet: .* collect\(\)"):
        federation(frame.lazy(), "label", "client")
    assert federation(frame.to_arrow(), "label", "client").fingerprint == expected


def test_a_pandas_frame(expected: str) -> None:
    import pandas

    frame = pandas.DataFrame(COLUMNS)
    frame["tag"] = pandas.to_datetime(frame["tag"])
    twice = pandas.concat([frame, frame[["station"]]], axis=1)
    with pytest.raises(GlocalError, match="the table names a column twice, 'station'"):
        federation(twice, "label", "client")
    frame["station"] = frame["station"].astype("category")
    assert federation(frame, "label", "client").fingerprint == expected
    assert as_table(frame).where(3) == "row 3"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_files_without_quotes_are_read_as_those_with(end: str, tmp_path: Path) -> None:
    lines = ["a;b;", " 1 ;x y;", "", " ; ;", "2,5;;", "   ", "\u00a03;\tz;"]
    tables = []
    for quote in ("", '"'):
        quoted = [line.replace("x y", f"{quote}x y{quote}") for line in lines if line.strip()]
        file = tmp_path / "t.csv"
        file.write_bytes(end.join([*quoted[:2], "", *quoted[2:], ""]).encode())
        tables.append(read_table(file))
    for table in tables:
        assert {name: cells.tolist() for name, cells in table.items()} == {
            "a": ["1", "2,5", "3"],
            "b": ["x y", "", "z"],
        }
        assert table.lines == [2, 5, 6]


def test_numbers_are_read_as_python_reads_them(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    for cells, kind in (
        (["1", "-2.5", "+3e2", ".5", "4.", ""], "number"),
        (["1_0", "2", "3", "4", "5", "6"], "category"),
        (["1-2", "3", "e", "4", "5", "6"], "category"),
        (["nan", "-", "", "NA", "7", "8"], "number"),
    ):
        file.write_text("a,b\n" + "".join(f"{cell},1\n" for cell in cells), encoding="utf-8")
        column = recognised(read_table(file), "a")
        assert column.kind == kind
        if kind == "number":
            gaps = ("nan", "-", "", "NA")
            wanted = [float("nan") if cell in gaps else float(cell) for cell in cells]
            assert np.array_equal(column.values, wanted, equal_nan=True)
