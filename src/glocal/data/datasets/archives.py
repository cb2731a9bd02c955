"""Files in a folder (plain or gzipped), a tar archive, a wheel or a Debian package.

Files are read into memory by name. Nothing is ever written under a name from an archive.
"""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Container, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, cast

from glocal.core.errors import GlocalError

LARGEST = 64 * 2**20
"""The largest file in bytes, also after decompression; no file of a known data set is larger."""

UNREADABLE = (
    *(OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError),
    *(zipfile.BadZipFile, NotImplementedError),
)


def in_folder(folder: Path, names: Sequence[str]) -> dict[str, Path]:
    """Where those named files are that exist, plain or with ``.gz``."""
    places = ((name, folder / f"{name}{suffix}") for name in names for suffix in (".gz", ""))
    return {name: path for name, path in places if path.is_file()}


def in_archive(path: Path, names: Container[str], largest: int | None = None) -> dict[str, bytes]:
    """The contents of those named files in a ``.tar.gz``, ``.tgz``, ``.deb`` or ``.whl``."""
    contents = {}
    try:
        if path.suffix == ".whl":
            return _in_zip(path, names)
        with path.open("rb") as file:
            stream = _data_of_deb(file) if path.suffix == ".deb" else file
            with tarfile.open(fileobj=stream, mode="r:*") as archive:
                for member in archive:
                    inside = PurePosixPath(member.name)
                    name = inside.name.removesuffix(".gz")
                    if name not in names or not member.isreg() or ".." in inside.parts:
                        continue
                    content = archive.extractfile(member)
                    if content is not None:
                        zipped = inside.suffix == ".gz"
                        plain = _unzipped(content) if zipped else content
                        contents[name] = _bounded(plain, name, largest)
    except UNREADABLE:
        raise GlocalError(
            f"{path.name} is not a readable archive: it is cut off or damaged; fetch it again."
        ) from None
    return contents


def _in_zip(path: Path, names: Container[str]) -> dict[str, bytes]:
    contents = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name = PurePosixPath(member.filename).name
            if name in names and not member.is_dir():
                with archive.open(member) as file:
                    contents[name] = _bounded(file, name)
    return contents


def read(path: Path) -> bytes:
    """The content of a file, unpacked."""
    try:
        with path.open("rb") as file:
            return _bounded(_unzipped(file) if path.suffix == ".gz" else file, path.name)
    except UNREADABLE:
        raise GlocalError(
            f"{str(path)!r} cannot be read: it is cut off or damaged; fetch it again."
        ) from None


def _unzipped(file: IO[bytes]) -> IO[bytes]:
    return cast(IO[bytes], gzip.GzipFile(fileobj=file))


def _bounded(file: IO[bytes], name: str, largest: int | None = None) -> bytes:
    most = LARGEST if largest is None else largest
    content = file.read(most + 1)
    if len(content) > most:
        raise GlocalError(f"{name} is larger than any file of this data: fetch the right one.")
    return content


def _data_of_deb(file: IO[bytes]) -> IO[bytes]:
    """The files of a Debian package: an ``ar`` archive with ``data.tar`` compressed in it."""
    if file.read(8) != b"!<arch>\n":
        raise tarfile.ReadError("no ar archive")
    while len(head := file.read(60)) == 60:
        try:
            size = int(head[48:58])
        except ValueError:
            raise tarfile.ReadError("no ar header") from None
        content = file.read(size + size % 2)
        if head.startswith(b"data.tar"):
            return io.BytesIO(content[:size])
    raise tarfile.ReadError("no data.tar")
