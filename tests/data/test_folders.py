"""Data in folders, in the formats that people have on disk, from tiny files in each format."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import glocal
from glocal.core.errors import GlocalError
from glocal.core.padding import IGNORED
from glocal.data.folders.audio import mel_filters, power

GEN = np.random.default_rng(0)


def image(path: Path, size: int = 6, colour: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (size, size, 3) if colour else (size, size)
    Image.fromarray(GEN.integers(0, 256, shape, dtype=np.uint8)).save(path)


def leaf(root: Path, x: Any, y: Any, users: int = 2, n: int = 5) -> Path:
    for part in ("train", "test"):
        (root / part).mkdir(parents=True, exist_ok=True)
        names = [f"u{u}" for u in range(users)]
        data = {
            u: {"x": [x(u, i) for i in range(n)], "y": [y(u, i) for i in range(n)]} for u in names
        }
        content = {"users": names, "num_samples": [n] * users, "user_data": data}
        (root / part / "all_0.json").write_text(json.dumps(content))
    return root


def recording(path: Path, hertz: float = 440, rate: int = 8000, seconds: float = 0.5) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    at = np.arange(round(rate * seconds)) / rate
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((np.sin(2 * np.pi * hertz * at) * 30000).astype("<i2").tobytes())


def test_leaf_numbers_are_images_and_its_two_files_are_the_splits(tmp_path: Path) -> None:
    root = leaf(tmp_path / "femnist", lambda u, i: [0.5] * 783 + [i / 5], lambda u, i: i % 3)
    fed = glocal.load(root)
    assert fed.names == ("u0", "u1")
    assert fed.x.shape == (20, 1, 28, 28)
    assert fed.test.counts().tolist() == [5, 5]
    assert fed.val.counts().tolist() == [1, 1]
    assert int(fed.train.rows.max()) < 10  # the first file
    assert glocal.load(f"leaf('{root}')").fingerprint == fed.fingerprint


def test_leaf_characters_and_words(tmp_path: Path) -> None:
    text = "to be or not to be"
    root = leaf(tmp_path / "s", lambda u, i: text[i : i + 8], lambda u, i: text[i + 8])
    fed = glocal.load(root)
    codes = fed.describe["labels"]
    assert fed.x.shape[1] == 8
    assert fed.classes == fed.vocabulary == len(codes) == len(set(text[:13])) + 2
    assert [codes[c] for c in text[:8]] == fed.x[0].tolist()
    assert int(fed.y[0]) == codes[text[8]]
    words = ["<BOS>", "yes", "no", "<PAD>"]
    root = leaf(tmp_path / "r", lambda u, i: [words], lambda u, i: {"target_tokens": [words[1:]]})
    fed = glocal.load(root)
    codes = fed.describe["labels"]
    assert fed.x[0].tolist() == [codes["<BOS>"], codes["yes"], codes["no"], 0]
    assert fed.y[0].tolist() == [codes["yes"], codes["no"], IGNORED, IGNORED]


def test_leaf_images_by_their_names(tmp_path: Path) -> None:
    root = leaf(tmp_path / "celeba", lambda u, i: f"{u}{i}.png", lambda u, i: i % 2)
    with pytest.raises(GlocalError, match=r"such as 'u00.png'.* with images="):
        glocal.load(root)
    for u in range(2):
        for i in range(5):
            image(tmp_path / "img" / f"u{u}{i}.png", colour=True)
    fed = glocal.load(f"leaf('{root}', images='{tmp_path / 'img'}', size=4)")
    assert fed.x.shape == (20, 3, 4, 4)
    (tmp_path / "img" / "u13.png").unlink()
    with pytest.raises(GlocalError, match=r"u13.png.* cannot be read as an image"):
        glocal.load(f"leaf('{root}', images='{tmp_path / 'img'}')")


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ('{"users": ["a"], "user_data"', r"all_0.json is not JSON \(line 1, column 29"),
        ('{"users": ["a"], "user_data": {}}', "has no users in user_data"),
        ('{"users": ["a"], "user_data": {"a": {"x": [], "y": []}}}', "user 'a' of .* no examples"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[1]], "y": []}}}', "1 entries in x and 0"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[1]]}}}', "no lists x and y"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[1], [2, 3]], "y": [0, 1]}}}', "none of LEAF"),
    ],
)
def test_leaf_files_that_are_damaged(content: str, match: str, tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "test").mkdir()
    for part in ("train", "test"):
        (tmp_path / part / "all_0.json").write_text(content)
    with pytest.raises(GlocalError, match=match):
        glocal.load(f"leaf('{tmp_path}')")


def test_images_by_class_and_by_client(tmp_path: Path) -> None:
    for c in ("cat", "dog"):
        for i in range(6):
            image(tmp_path / "classes" / c / f"{i}.png")
            image(tmp_path / "clients" / f"site{i % 2}" / c / f"{i}.png", colour=i == 0)
    with pytest.raises(GlocalError, match="classes has folders for classes and none for clients"):
        glocal.load(tmp_path / "classes")
    fed = glocal.load(tmp_path / "classes", clients=2, partition="iid")
    assert fed.x.shape == (12, 1, 6, 6)
    assert fed.describe["labels"] == {"cat": 0, "dog": 1}
    assert 0 <= float(fed.x.min()) < float(fed.x.max()) <= 1
    fed = glocal.load(tmp_path / "clients")
    assert fed.names == ("site0", "site1")
    assert fed.x.shape == (12, 3, 6, 6)  # one has colours
    image(tmp_path / "clients" / "site0" / "cat" / "odd.png", size=5)
    with pytest.raises(GlocalError, match=r"odd.png' is 5×5 and .*0.png' is 6×6: give a size"):
        glocal.load(tmp_path / "clients")
    assert glocal.load(f"images('{tmp_path / 'clients'}', size=8, grey=true)").x.shape[1:] == (
        1,
        8,
        8,
    )


def test_folders_of_parts(tmp_path: Path) -> None:
    for c in ("cat", "dog"):
        for part, n in (("train", 4), ("val", 1), ("test", 2)):
            for i in range(n):
                image(tmp_path / "official" / part / c / f"{i}.png")
                for site in ("a", "b"):
                    image(tmp_path / "inside" / site / part / c / f"{i}.png")
                    image(tmp_path / "outside" / part / site / c / f"{i}.png")
    for layout in ("inside", "outside"):
        fed = glocal.load(tmp_path / layout)
        assert fed.names == ("a", "b")
        counts = [s.counts().tolist() for s in (fed.train, fed.val, fed.test)]
        assert counts == [[8, 8], [2, 2], [4, 4]]
    fed = glocal.load(tmp_path / "official", clients=2, partition="iid")
    assert fed.central is not None
    assert len(fed.central[1]) == 4
    assert len(fed.y) == 10
    image(tmp_path / "inside" / "a" / "train" / "cat" / "too" / "deep.png")
    with pytest.raises(GlocalError, match=r"deep.png' is 4 folders below"):
        glocal.load(tmp_path / "inside")


def test_recordings_by_speaker(tmp_path: Path) -> None:
    for word, hertz in (("yes", 400), ("no", 1600)):
        for speaker in ("ann", "bob"):
            for i in range(2):
                recording(tmp_path / word / f"{speaker}_nohash_{i}.wav", hertz)
    fed = glocal.load(tmp_path)
    assert fed.names == ("ann", "bob")
    assert fed.x.shape == (8, 1, 40, 101)  # one second at 8 kHz, a window every 10 ms
    assert fed.describe["labels"] == {"no": 0, "yes": 1}
    loudest = fed.x[:, 0, :, 20].argmax(1)  # bands are in the order of frequencies
    assert bool((loudest[fed.y == 0] > loudest[fed.y == 1]).all())
    assert bool((fed.x[:, 0, :, 90] < -10).all())  # padded with silence
    plain = glocal.load(f"audio('{tmp_path}', features=spectrogram, seconds=0.2)")
    assert plain.x.shape == (8, 1, 129, 21)
    recording(tmp_path / "yes" / "bob_nohash_9.wav", rate=16000)
    with pytest.raises(GlocalError, match=r"bob_nohash_9.wav' has 16000 samples a second"):
        glocal.load(tmp_path)
    (tmp_path / "yes" / "bob_nohash_9.wav").write_bytes(b"RIFF")
    with pytest.raises(GlocalError, match=r"bob_nohash_9.wav' is not a readable .wav"):
        glocal.load(tmp_path)


def test_spectra_by_hand() -> None:
    rate, hertz = 8000, 1000
    tone = torch.sin(2 * torch.pi * hertz * torch.arange(rate) / rate)
    spectrum = power(tone, rate)
    assert int(spectrum[:, 50].argmax()) == hertz * 256 // rate
    # A Hann window of 200 samples has the sum 100, and a tone of amplitude 1 half of it.
    assert float(spectrum[:, 50].max()) == pytest.approx(50**2, rel=0.01)
    filters = mel_filters(10, 129, rate)
    assert bool((filters.max(1).values <= 1).all())
    inner = filters[:, 20:100].sum(0)
    assert torch.allclose(inner, torch.ones_like(inner), atol=1e-5)  # triangles that add up to one


def cifar100_files(n: int = 30) -> dict[str, bytes]:
    def batch(n: int) -> bytes:
        data = GEN.integers(0, 256, (n, 3072), dtype=np.uint8)
        fine, coarse = (np.arange(n) % 100).tolist(), (np.arange(n) % 20).tolist()
        return pickle.dumps(
            {b"data": data, b"fine_labels": fine, b"coarse_labels": coarse}, protocol=2
        )

    meta = {b"fine_label_names": [b"f%d" % i for i in range(100)], b"coarse_label_names": []}
    return {"train": batch(n), "test": batch(8), "meta": pickle.dumps(meta, protocol=2)}


def test_cifar100_fine_and_coarse(tmp_path: Path) -> None:
    files = cifar100_files()
    with tarfile.open(tmp_path / "cifar-100-python.tar.gz", "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"cifar-100-python/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    fed = glocal.load(tmp_path, clients=2, partition="iid")
    assert fed.classes == 100
    assert fed.x.shape == (30, 3, 32, 32)
    assert fed.describe["labels"]["f7"] == 7
    assert fed.central is not None
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    coarse = glocal.load(f"cifar100('{tmp_path}', labels=coarse)", clients=2, partition="iid")
    assert coarse.classes == 20
    assert torch.equal(coarse.x, fed.x)
    (tmp_path / "train").write_bytes(pickle.dumps({b"data": Path("x")}))
    with pytest.raises(GlocalError, match="train is not a pickled file of CIFAR-100"):
        glocal.load(tmp_path, clients=2)


def test_medmnist(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {}
    for part, n in (("train", 20), ("val", 10), ("test", 6)):
        arrays[f"{part}_images"] = GEN.integers(0, 256, (n, 28, 28, 3), dtype=np.uint8)
        arrays[f"{part}_labels"] = (np.arange(n) % 3)[:, None].astype(np.uint8)
    np.savez(tmp_path / "bloodmnist.npz", **arrays)
    fed = glocal.load(tmp_path / "bloodmnist.npz", clients=2, partition="iid", test="official")
    assert fed.x.shape == (36, 3, 28, 28)
    assert fed.classes == 3
    assert fed.central is not None
    assert sorted(fed.test.rows.tolist()) == list(range(30, 36))
    arrays["train_labels"] = np.zeros((20, 14), np.uint8)
    arrays["val_labels"] = np.zeros((10, 14), np.uint8)
    np.savez(tmp_path / "chestmnist.npz", **arrays)
    with pytest.raises(GlocalError, match=r"chestmnist.npz has 14 labels for each image"):
        glocal.load(tmp_path / "chestmnist.npz", clients=2, partition="iid")


def test_a_folder_of_nothing_known(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(GlocalError, match="has no data of a known layout: give LEAF's JSON"):
        glocal.load(tmp_path)
    with pytest.raises(GlocalError, match="there is no folder 'nowhere' of images"):
        glocal.load("images(nowhere)")
