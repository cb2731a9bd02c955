"""Tables from files: text with separators, Excel, Parquet and Feather."""

from __future__ import annotations

import os
from pathlib import Path

from glocal.core.errors import GlocalError, shown
from glocal.data.reading import delimited, with_extras
from glocal.data.table import Table

SUFFIXES = (".csv", ".tsv", ".parquet", ".feather", ".xlsx", ".xlsm")
"""The files that hold a table, by the ends of their names."""

OPTIONS = ("separator", "decimal", "encoding")


def read_table(
    path: str | Path,
    *,
    separator: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
) -> Table:
    """Read the table of a file.

    Args:
        path: of a .csv, .tsv, .xlsx, .parquet or .feather file.
        separator: between the cells of a .csv; by default it is found.
        decimal: the decimal mark of a .csv, "." or ","; by default it is found in each column.
        encoding: of a .csv; by default UTF-8 or, where it is none, Windows-1252.
    """
    path = Path(path)
    if not os.path.isfile(path):  # Path.is_file raises where a name is too long
        raise GlocalError(f"there is no file {shown(str(path))}: check the path.")
    suffix = path.suffix.lower()
    if suffix in (".csv", ".tsv"):
        return delimited.read(path, separator, decimal, encoding)
    for option, value in zip(OPTIONS, (separator, decimal, encoding), strict=True):
        if value is not None:
            raise GlocalError(
                f"{option}= says how a .csv file is written, and {path.name} is none: leave it out."
            )
    if suffix in (".xlsx", ".xlsm"):
        return with_extras.read_excel(path)
    if suffix in (".parquet", ".feather"):
        return with_extras.read_arrow(path)
    raise GlocalError(
        f"{path.name} is not a kind of table that can be read: give a file that ends in "
        f"{', '.join(SUFFIXES)}."
    )
