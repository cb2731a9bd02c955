"""Formats of image files: read alike in every form, and harmless when hostile."""

from __future__ import annotations

import io
import os
import pickle
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_files import (
    cifar_binary,
    cifar_pickled,
    cifar_png,
    idx_bytes,
    idx_files,
    tar,
    toy,
    toy_arrays,
    write,
)

from glocal.core.errors import GlocalError
from glocal.data.datasets import archives as places
from glocal.data.datasets import registry
from glocal.data.datasets.formats import binary_batch, idx, pickled_batch, png_rows
from glocal.data.datasets.image_dataset import arrays

GREY = toy_arrays((1, 28, 28))


COLOUR = toy_arrays((3, 32, 32))


MNIST = toy(registry.MNIST, GREY)


CIFAR = toy(registry.CIFAR10, COLOUR)


@pytest.fixture(autouse=True)
def _no_data_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of the test's own, and no client: nothing here reaches a network."""
    monkeypatch.delenv("GLOCAL_DATA", raising=False)
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))


def same(got: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return all(np.array_equal(got[key], wanted[key]) for key in wanted)


def test_idx_by_hand() -> None:
    data = bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6])
    assert idx(data, "it").tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (idx_bytes(GREY["y_test"])[:-1], "cut off or damaged"),
        (idx_bytes(GREY["y_test"]) + b"0", "cut off or damaged"),
        (b"\0\0\x08\x03\0\0", "cut off or damaged"),
        (b"\0\0\x0d" + idx_bytes(GREY["y_test"])[3:], "not an IDX file"),
        (b"\x1f\x8b" + idx_bytes(GREY["y_test"]), "not an IDX file"),
        (b"\0\0\x08", "not an IDX file"),
        (b"", "not an IDX file"),
    ],
)
def test_a_damaged_idx_file_is_refused(data: bytes, problem: str) -> None:
    with pytest.raises(GlocalError, match=f"train-labels.*{problem}"):
        idx(data, "train-labels")


def test_a_binary_batch_by_hand() -> None:
    x, y = binary_batch(bytes([7]) + bytes(range(256)) * 12, "it")
    assert y.tolist() == [7]
    assert x.shape == (1, 3, 32, 32)
    assert x[0, 0, 1, :3].tolist() == [32, 33, 34]  # red first, a row of 32 after the other
    for wrong in (b"", bytes(3072)):
        with pytest.raises(GlocalError, match="data_batch_1"):
            binary_batch(wrong, "data_batch_1")


@pytest.mark.parametrize("files", [cifar_binary, cifar_pickled, cifar_png])
def test_cifar_reads_alike_in_every_form(files: Callable[..., Any], tmp_path: Path) -> None:
    write(tmp_path / "d", files(COLOUR))
    assert same(arrays(CIFAR, str(tmp_path / "d")), COLOUR)


@pytest.mark.parametrize(
    ("name", "inside", "files"),
    [
        ("cifar-10-binary.tar.gz", "cifar-10-batches-bin", cifar_binary),
        ("cifar-10-python.tar.gz", "cifar-10-batches-py", cifar_pickled),
    ],
)
def test_cifar_reads_from_the_published_archives(
    name: str, inside: str, files: Callable[..., Any], tmp_path: Path
) -> None:
    write(tmp_path / "d", {name: tar(files(COLOUR), inside)})
    assert same(arrays(CIFAR, str(tmp_path / "d")), COLOUR)


class Evil:
    def __init__(self, what: Callable[..., Any], *args: Any) -> None:
        self.call = what, args

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("what", ["system", "exec", "mkdir", "getattr", "numpy"])
def test_a_pickle_cannot_run_anything(what: str, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    evil = {
        "system": Evil(os.system, f"echo > {ran}"),
        "exec": Evil(exec, f"open({str(ran)!r}, 'w').close()"),
        "mkdir": Evil(os.mkdir, str(ran)),
        "getattr": Evil(getattr, os, "system"),
        "numpy": Evil(np.save, str(ran), 1),
    }[what]
    if what == "getattr":
        data = b"\x80\x02cbuiltins\ngetattr\ncos\nsystem\nU\x08__call__\x86R."
    else:
        data = pickle.dumps({b"data": evil, b"labels": [1]}, protocol=2)
    with pytest.raises(GlocalError, match="test_batch is not a pickled batch"):
        pickled_batch(data, "test_batch")
    assert not list(tmp_path.glob("ran*"))
    if what != "getattr":
        pickle.loads(data)  # it would have: the test can fail
        assert list(tmp_path.glob("ran*"))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nonsense",
        cifar_pickled(COLOUR)["test_batch"][:-200],
        pickle.dumps({}),
        pickle.dumps({b"data": [1], b"labels": [1]}),
        b"\x80\x02cnumpy\nndarray\n)R.",
    ],
)
def test_a_damaged_pickle_is_one_sentence(data: bytes) -> None:
    with pytest.raises(GlocalError, match="it is not a pickled batch"):
        pickled_batch(data, "it")


def test_a_damaged_picture_is_one_sentence() -> None:
    whole = cifar_png(COLOUR)["test_batch.png"]
    for wrong in (b"", b"GIF89a", whole[: len(whole) // 2]):
        with pytest.raises(GlocalError, match="it is not a readable picture"):
            png_rows(wrong, "it")


def test_an_archive_cannot_write_or_lead_outside(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, kind in (
            ("../data_batch_1.bin", tarfile.REGTYPE),
            ("d/../../data_batch_2.bin", tarfile.REGTYPE),
            ("data_batch_3.bin", tarfile.SYMTYPE),
            ("data_batch_4.bin", tarfile.LNKTYPE),
            ("good/data_batch_5.bin", tarfile.REGTYPE),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.size, member.linkname = kind, 4, str(secret)
            archive.addfile(member, io.BytesIO(b"evil") if kind == tarfile.REGTYPE else None)
    path = write(tmp_path / "d", {"a.tgz": out.getvalue()}) / "a.tgz"
    before = sorted(tmp_path.rglob("*"))
    found = places.in_archive(path, [f"data_batch_{i}.bin" for i in range(1, 6)])
    assert found == {"data_batch_5.bin": b"evil"}
    assert sorted(tmp_path.rglob("*")) == before


def test_what_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "d", idx_files(GREY), zipped=True)
    monkeypatch.setattr(places, "LARGEST", 1000)
    with pytest.raises(GlocalError, match="larger than any file of this data"):
        arrays(MNIST, str(tmp_path / "d"))


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.9])
def test_a_truncated_archive_is_one_sentence(share: float, tmp_path: Path) -> None:
    whole = tar(cifar_binary(COLOUR), "cifar-10-batches-bin")
    write(tmp_path / "d", {"cifar-10-binary.tar.gz": whole[: int(share * len(whole))]})
    with pytest.raises(GlocalError, match="not a readable archive"):
        arrays(CIFAR, str(tmp_path / "d"))
