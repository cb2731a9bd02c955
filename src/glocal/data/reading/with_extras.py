"""Tables that optional packages read: Excel by openpyxl, Parquet and Feather by pyarrow."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from glocal.core.errors import GlocalError, shown
from glocal.data.reading.header import checked_header
from glocal.data.table import Table


def _missing(path: Path, package: str, extra: str) -> GlocalError:
    return GlocalError(
        f"{path.name} needs the package {package}, which is not installed: run pip install "
        f"'glocal[{extra}]', or save the table as .csv."
    )


def read_excel(path: Path) -> Table:
    """The first sheet of an Excel file; formulas count as the values they had when saved."""
    try:
        import openpyxl
    except ImportError:
        raise _missing(path, "openpyxl", "excel") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about drawings and formats that we do not read
            book = openpyxl.load_workbook(path, read_only=True, data_only=True)
            try:
                sheets = book.worksheets
                title = sheets[0].title if sheets else ""
                cells = [list(row) for row in sheets[0].iter_rows(values_only=True)]
            finally:
                book.close()
    except Exception as error:  # a damaged archive raises almost anything
        raise GlocalError(
            f"{path.name} is not a readable Excel file ({type(error).__name__}): save it again as "
            ".xlsx or .csv."
        ) from None
    rows = [(i, row) for i, row in enumerate(cells, 1) if any(c not in (None, "") for c in row)]
    if len(rows) < 2:
        raise GlocalError(
            f"{path.name} has no rows in its first sheet, {shown(title)}: give a header and a row "
            "for each example."
        )
    (_, names), *body = rows
    width = max(i for i, name in enumerate(names, 1) if name not in (None, ""))
    header = checked_header(["" if n is None else str(n) for n in names[:width]], path.name)
    columns = {
        name: np.array([*(_cell(row, i) for _, row in body), None], dtype=object)[:-1]
        for i, name in enumerate(header)
    }
    notes = [f"the sheet {shown(title)}, the first of {len(sheets)}"] if len(sheets) > 1 else []
    return Table(columns, [line for line, _ in body], notes=notes)


def _cell(row: list[Any], column: int) -> Any:
    value = row[column] if column < len(row) else None
    return value.strip() if isinstance(value, str) else value


def read_arrow(path: Path) -> Table:
    """The table of a Parquet or Feather file."""
    try:
        from pyarrow import feather, parquet, types
    except ImportError:
        raise _missing(path, "pyarrow", "parquet") from None
    read = parquet.read_table if path.suffix.lower() == ".parquet" else feather.read_table
    try:
        table = read(path)
        names = list(table.column_names)
        checked_header(names, path.name)
        columns: dict[str, Any] = {}
        for name, values in zip(names, table.columns, strict=True):
            if name.startswith("__index_level_"):  # pandas' row numbers
                continue
            if types.is_dictionary(values.type):
                values = values.cast(values.type.value_type)
            if types.is_nested(values.type):
                raise GlocalError(
                    f"column {shown(name)} of {path.name} has lists or records in its cells: give "
                    "one value a cell."
                )
            if types.is_boolean(values.type) or types.is_decimal(values.type):
                columns[name] = np.array([*values.to_pylist(), None], dtype=object)[:-1]
            else:
                columns[name] = values.to_numpy()
    except GlocalError:
        raise
    except Exception as error:  # damaged, or another format
        raise GlocalError(
            f"{path.name} is not a readable {path.suffix.lower()} file ({type(error).__name__}): "
            "write it again, or save the table as .csv."
        ) from None
    if not columns or table.num_rows == 0:
        raise GlocalError(f"{path.name} has no rows: give a row for each example.")
    return Table({name.strip(): values for name, values in columns.items()})
