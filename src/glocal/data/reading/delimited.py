"""Text with separators (.csv, .tsv): its encoding and separator are found, or said by the user.

Cells stay text here: what a column holds is found in :mod:`glocal.data.preprocessing.kinds`, where
its decimal mark is found, too.
"""

from __future__ import annotations

import codecs
import csv
import io
import unicodedata
from itertools import islice
from pathlib import Path

import numpy as np

from glocal.core.errors import GlocalError, shown
from glocal.data.reading.header import checked_header
from glocal.data.table import Table

SEPARATORS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}
"""The separators that are looked for, most usual first."""

SAID = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "bar": "|", "space": " "}
"""Words for separators that are hard to type."""

SAMPLE = 100
"""The rows in which a separator is looked for."""

MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""First bytes that say in which encoding the rest is."""

Row = tuple[int, list[str]]
"""The line on which a row begins, and its cells."""


def read(path: Path, separator: str | None, decimal: str | None, encoding: str | None) -> Table:
    """The table of a file, with all cells as text."""
    if decimal not in (None, ".", ","):
        raise GlocalError(f"decimal= is the decimal mark, '.' or ',', not {shown(decimal)}.")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise GlocalError(f"{path.name} cannot be read: {error.strerror}.") from None
    text, named = _decoded(content, path.name, encoding)
    mark = _separator(text, separator, path)
    try:
        rows = _rows(text, mark)
    except csv.Error as error:
        raise GlocalError(
            f"{path.name} is not a readable .csv file in UTF-8 or Windows-1252: {error}."
        ) from None
    if len(rows) < 2:
        raise GlocalError(f"{path.name} has no rows: give a header and a line for each example.")
    (_, names), *body = rows
    while len(names) > 1 and not names[-1].strip() and _is_empty(body, len(names)):
        names = names[:-1]  # every line ends in a separator
        body = [(line, cells[: len(names)]) for line, cells in body]
    header = checked_header(names, path.name)
    for line, cells in body:
        if len(cells) != len(header):
            raise GlocalError(
                f"{path.name} has {len(cells)} cells in line {line} and {len(header)} columns: "
                "give every row a cell for each column."
            )
    notes = [f"read as {named}"] if named else []
    if mark != ",":
        notes.append(f"the separator is {SEPARATORS.get(mark, shown(mark))}")
    by_column = zip(*(cells for _, cells in body), strict=True)
    columns = {
        name: np.array([*(cell.strip() for cell in cells), None], dtype=object)[:-1]
        for name, cells in zip(header, by_column, strict=True)
    }
    lines = [line for line, _ in body]
    return Table(columns, lines, text=True, decimal=decimal, notes=notes)


def _decoded(content: bytes, file: str, encoding: str | None) -> tuple[str, str]:
    """The text, and the name of its encoding where that is not UTF-8."""
    if encoding is not None:
        try:
            codec = codecs.lookup(encoding)
            text, _ = codec.decode(content)
            if not isinstance(text, str):
                raise LookupError
        except (LookupError, TypeError):
            raise GlocalError(
                f"there is no encoding {shown(encoding)}: say utf-8, cp1252, latin-1 or utf-16."
            ) from None
        except ValueError:  # UnicodeDecodeError, and what odd codecs raise
            raise GlocalError(
                f"{file} is not encoded in {shown(encoding)}: leave encoding= out to have it found."
            ) from None
        return _plain(text.removeprefix("\ufeff"), file), codec.name
    for mark, name in MARKS:
        if content.startswith(mark):
            try:
                return _plain(content.decode(name), file), "" if "8" in name else name
            except UnicodeDecodeError as error:
                raise _unreadable(file, str(error)) from None
    try:
        return _plain(content.decode("utf-8"), file), ""
    except UnicodeDecodeError as error:
        problem = str(error)
    try:
        text = content.decode("cp1252")
    except UnicodeDecodeError:
        raise _unreadable(file, problem) from None
    # Almost any bytes are some text in this encoding; control characters say that it is none.
    if any(unicodedata.category(c) == "Cc" and c not in "\t\r\n" for c in set(text)):
        raise _unreadable(file, problem)
    return text, "Windows-1252 (cp1252)"


def _plain(text: str, file: str) -> str:
    if "\0" in text:
        raise _unreadable(file, "it has NUL characters")
    return text


def _unreadable(file: str, why: str) -> GlocalError:
    return GlocalError(f"{file} is not a readable .csv file in UTF-8 or Windows-1252: {why}.")


def _separator(text: str, said: str | None, path: Path) -> str:
    """The separator: as said, or the one that gives all rows the same number of cells."""
    if said is not None:
        mark = SAID.get(said, said)
        if len(mark) != 1 or mark in '"\r\n':
            raise GlocalError(
                f"separator= is one character, such as ';' or 'tab', not {shown(said)}."
            )
        return mark
    widths: dict[str, int] = {}
    in_header: dict[str, int] = {}
    for mark in SEPARATORS:
        try:
            reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=mark)
            sample = [row for row in islice(reader, SAMPLE) if row]
        except csv.Error:
            continue
        if not sample:
            break
        in_header[mark] = len(sample[0])
        if len({len(row) for row in sample}) == 1:
            widths[mark] = len(sample[0])
    for counted in (widths, in_header):
        most = max(counted, key=counted.__getitem__, default=",")
        if counted.get(most, 1) > 1:
            return most
    return "\t" if path.suffix.lower() == ".tsv" else ","


def _rows(text: str, mark: str) -> list[Row]:
    """All rows in which there is something, each with the line on which it begins."""
    rows: list[Row] = []
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=mark)
    begins = 1
    for cells in reader:
        if cells and (len(cells) == 1 or any(cell.strip() for cell in cells)):
            rows.append((begins, cells))
        begins = reader.line_num + 1
    return rows


def _is_empty(body: list[Row], width: int) -> bool:
    """Whether the last column is empty, or missing, in every row."""
    return all(len(cells) == width and not cells[-1].strip() for _, cells in body)
