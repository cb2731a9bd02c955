"""SHA-256 of files, by which one that was damaged, or is another, is noticed.

Those of the files in a folder are in its file ``SHA256SUMS``, in the format of ``sha256sum``:
``sha256sum -c SHA256SUMS`` checks them, too.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from glocal.core.errors import GlocalError
from glocal.core.files import write

FILE = "SHA256SUMS"

_LINE = re.compile(r"([0-9a-f]{64})  ([^/\\]+)")


def of_file(file: Path) -> str:
    """The SHA-256 of a file's content."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


@cache
def of_package() -> str:
    """The SHA-256 of this package's source files: equal for equal code, whatever runs it."""
    root, digest = Path(__file__).parents[1], hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        name = file.relative_to(root).as_posix()
        digest.update(f"{name} {of_file(file)}\n".encode())
    return digest.hexdigest()


def of_json(value: Mapping[str, Any]) -> str:
    """The SHA-256 of an object as JSON holds it, however that is laid out."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def keep(folder: Path, names: Iterable[str]) -> None:
    """Write the checksums of those of these files that there are."""
    there = [name for name in names if (folder / name).is_file()]
    write(folder / FILE, "".join(f"{of_file(folder / name)}  {name}\n" for name in there).encode())


def check(folder: Path, remedy: str) -> None:
    """Raise if a file in the folder is not the one whose checksum was kept."""
    try:
        lines = (folder / FILE).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise GlocalError(f"{folder / FILE} cannot be read ({error}): {remedy}.") from error
    for line in lines:
        found = _LINE.fullmatch(line)
        if found is None:
            raise GlocalError(f"{folder / FILE} is damaged: {remedy}.")
        checksum, file = found[1], folder / found[2]
        if not file.is_file():
            raise GlocalError(f"{folder} is not whole, as it has no {file.name}: {remedy}.")
        if of_file(file) != checksum:
            raise GlocalError(
                f"{file} is damaged or another than was written, as its SHA-256 is not the one in "
                f"{FILE}: {remedy}."
            )
