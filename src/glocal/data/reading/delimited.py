"""Text with separators (.csv, .tsv): its encoding and separator are found, or said by the user.

Cells stay text here: what a column holds is found in :mod:`glocal.data.preprocessing.kinds`, where
its decimal mark is found, too.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import unicodedata
from itertools import islice
from pathlib import Path

import numpy as np

from glocal.core.errors import GlocalError, shown
from glocal.data.reading.header import checked_header
from glocal.data.table import Table
from glocal.data.validation import Array

SEPARATORS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}
"""The separators that are looked for, most usual first."""

SAID = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "bar": "|", "space": " "}
"""Words for separators that are hard to type."""

SEPARATOR_LINE = re.compile(r'"?sep=(?P<mark>[^\r\n])"?(?=[\r\n])', re.IGNORECASE)
"""A first line that tells Excel the separator; the line stays, empty, so that lines are counted."""

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
    if said := SEPARATOR_LINE.match(text):
        text = text[said.end() :]
        separator = said["mark"] if separator is None else separator
    mark = _separator(text, separator, path)
    lines, columns = _columns(text, mark, path.name)
    if len(lines) < 2:
        raise GlocalError(f"{path.name} has no rows: give a header and a line for each example.")
    while len(columns) > 1 and not any(columns[-1]):
        columns.pop()  # every line ends in a separator
    header = checked_header([cells[0] for cells in columns], path.name)
    notes = [f"read as {named}"] if named else []
    if mark != ",":
        notes.append(f"the separator is {SEPARATORS.get(mark, shown(mark))}")
    by_name = {name: _objects(cells[1:]) for name, cells in zip(header, columns, strict=True)}
    return Table(by_name, lines[1:], text=True, decimal=decimal, notes=notes)


def _objects(cells: list[str]) -> Array:
    """An array of these cells, whatever their lengths."""
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    return array


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


def _columns(text: str, mark: str, file: str) -> tuple[list[int], list[list[str]]]:
    """The line on which each row begins, and the cells of each column, its name first."""
    found = _without_quotes(text, mark)
    if found is not None:
        return found
    try:
        rows = _rows(text, mark)
    except csv.Error as error:
        raise _unreadable(file, str(error)) from None
    width = len(rows[0][1]) if rows else 0
    for line, cells in rows:
        if len(cells) != width:
            checked_header(rows[0][1], file)
            raise GlocalError(
                f"{file} has {len(cells)} cells in line {line} and {width} columns: give every row "
                "a cell for each column."
            )
    by_column = zip(*(cells for _, cells in rows), strict=True)
    return [line for line, _ in rows], [list(map(str.strip, cells)) for cells in by_column]


def _without_quotes(text: str, mark: str) -> tuple[list[int], list[list[str]]] | None:
    """The same where no cell is quoted and all rows have as many cells: split in one step.

    None: it is not so, or a line is so long that a cell may be too long.
    """
    if '"' in text:
        return None
    every = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    numbers = [
        number
        for number, line in enumerate(every, 1)
        if line and (mark not in line or line.replace(mark, " ").strip())
    ]
    lines = [every[number - 1] for number in numbers]
    separators = {line.count(mark) for line in lines}
    if len(separators) != 1 or max(map(len, lines)) >= csv.field_size_limit():
        return None
    width = separators.pop() + 1
    cells = list(map(str.strip, mark.join(lines).split(mark)))
    return numbers, [cells[i::width] for i in range(width)]


def _rows(text: str, mark: str) -> list[Row]:
    """All rows in which there is something, each with the line on which it begins."""
    rows: list[Row] = []
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=mark)
    begins = 1
    for cells in reader:
        if cells and (len(cells) == 1 or any(map(str.strip, cells))):
            rows.append((begins, cells))
        begins = reader.line_num + 1
    return rows
