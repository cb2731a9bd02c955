"""The first line of a table: the names of its columns."""

from __future__ import annotations

from glocal.core.errors import GlocalError
from glocal.data.table import checked_names


def checked_header(names: list[str], file: str) -> list[str]:
    """The names of columns: each has one, and no two have the same."""
    header = [name.strip() for name in names]
    for i, name in enumerate(header):
        if not name:
            raise GlocalError(
                f"{file} has no name for column {i + 1}: name it, or leave it out (pandas "
                "writes no row numbers with index=False)."
            )
    checked_names(header, file)
    return header
