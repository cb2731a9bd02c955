"""Files that are written atomically, and values as JSON and TOML hold them."""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from glocal.core.errors import GlocalError, NoRoomError


@contextmanager
def replacing(path: Path, temporary: str = "") -> Iterator[BinaryIO]:
    """A temporary file that is flushed to disk and renamed once it is written, or removed."""
    part = path.with_name(temporary or f".{path.name}.part")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        flush_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def private(path: str, flags: int) -> int:
    """An ``opener`` for :func:`open`: a file that it makes is for its owner alone."""
    return os.open(path, flags, 0o600)


def write(path: Path, content: bytes) -> None:
    """Write atomically, or raise the error for it.

    What is no plain file (a device, a pipe) is written to and not replaced, and a link stays a
    link: what it leads to is replaced.
    """
    try:
        with path.open("wb") if is_special(path) else replacing(path.resolve()) as file:
            file.write(content)
    except OSError as error:
        raise no_room(path, error) from error


def is_special(path: Path) -> bool:
    """Whether this path leads to something that is no plain file.

    Nor is what the system keeps of open files, such as ``/dev/stdout``: whoever has such a file
    open goes on to write to it.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    of_system = any(path.absolute().is_relative_to(root) for root in ("/dev", "/proc"))
    return of_system or not stat.S_ISREG(mode)


def make_folder(folder: Path) -> Path:
    """Make a folder unless it exists."""
    if folder.exists() and not folder.is_dir():
        raise GlocalError(f"the output folder {folder} is a file: choose another name.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GlocalError(
            f"the output folder {folder} cannot be made ({error.strerror}): choose another."
        ) from error
    return folder


def flush_folder(folder: Path) -> None:
    """A renamed file survives a power failure only once its folder is on disk too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some file systems cannot, and need not
            os.fsync(handle)
    finally:
        os.close(handle)


def no_room(path: Path, error: OSError) -> NoRoomError:
    """The error for a file that cannot be written."""
    return NoRoomError(f"{path} cannot be written ({error.strerror}): is there room?")


def dump(value: Any) -> bytes:
    """JSON with an end of line."""
    return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def plain(value: Any) -> Any:
    """The value as JSON can hold it; numbers that are not finite become null."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | bool | None) else str(value)


def toml(values: Mapping[str, Any]) -> str:
    """Values as lines and tables at the end; what is none is left out, as TOML has no null."""
    present = {k: v for k, v in values.items() if v is not None}
    lines = [f"{_quoted(k)} = {_inline(v)}" for k, v in present.items() if not isinstance(v, dict)]
    for name, table in present.items():
        if isinstance(table, dict):
            inside = [f"{_quoted(k)} = {_inline(v)}" for k, v in table.items() if v is not None]
            lines += ["", f"[{_quoted(name)}]", *inside]
    return "\n".join(lines) + "\n"


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        pairs = [f"{_quoted(k)} = {_inline(v)}" for k, v in value.items() if v is not None]
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_inline(v) for v in value if v is not None) + "]"
    # JSON's texts, numbers, true and false are TOML's too, but for the DEL character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _quoted(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _inline(key)
