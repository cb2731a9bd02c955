"""Values that must not leave a participant, the ways they may be written, and where they are."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path


def of_text(text: str) -> set[bytes]:
    """A text in the encodings that bytes of it may have."""
    return {form for code in ("utf-8", "utf-16-le") for form in of_bytes(text.encode(code))}


def of_number(value: float, written: str = "") -> set[bytes]:
    """A number as text with all its digits, and in double precision."""
    texts = {repr(value), f"{value:.15g}", f"{value:.12f}", written or repr(value)}
    double = {struct.pack(order + "d", value) for order in "<>"}
    return {
        form for each in ({text.encode() for text in texts} | double) for form in of_bytes(each)
    }


def of_numbers(values: Iterable[float]) -> set[bytes]:
    """Numbers beside each other in single precision: eight bytes or more, and each one's digits."""
    row = list(values)
    texts = {form for value in row for form in of_bytes(repr(value).encode()) if len(form) > 12}
    single = {struct.pack(f"{order}{len(row)}f", *row) for order in "<>"}
    return texts | {form for each in single for form in of_bytes(each)}


def of_bytes(content: bytes) -> set[bytes]:
    """Bytes as they are, in hexadecimal digits, and in base64 wherever they begin in a text."""
    shifted = {_inside_base64(content, shift) for shift in range(3)}
    return {content, content.hex().encode(), content.hex().upper().encode(), *shifted}


def _inside_base64(content: bytes, shift: int) -> bytes:
    """The characters of base64 that these bytes alone make, after ``shift`` others."""
    text = base64.b64encode(bytes(shift) + content + bytes(-(shift + len(content)) % 3))
    end = (shift + len(content)) * 8 // 6
    return text[-(-shift * 8 // 6) : end]


def files_of(*folders: Path) -> dict[str, bytes]:
    """What is in all files of these folders (or in these files), by path."""
    every = [path for folder in folders for path in (folder, *folder.rglob("*"))]
    return {str(path): path.read_bytes() for path in every if path.is_file()}


def where(canary: set[bytes], contents: Mapping[str, bytes]) -> list[str]:
    """The places that have the canary in one of its forms, or in their names."""
    return [
        name
        for name, content in contents.items()
        if any(form in content or form in name.encode() for form in canary)
    ]
