"""Files from strangers: nothing in them runs, and what cannot be read is refused in a sentence."""

from __future__ import annotations

import json
import os
import pickle
import random
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save

import glocal
from glocal.core.errors import GlocalError
from glocal.experiment.modules import load_weights
from glocal.nn.models import build

N = 24
X = np.random.default_rng(0).normal(size=(N, 3)).astype(np.float32)
Y = np.arange(N) % 2
ROWS = "".join(f"{i},{i % 2},{i % 3}\n" for i in range(N))
CSV = f"a,label,client\n{ROWS}"
NPZ = "is not a readable .npz file of plain arrays"


class Trap:
    """Unpickled, it makes a file."""

    def __reduce__(self) -> Any:
        return (os.mkdir, ("sprung",))


@pytest.fixture(autouse=True)
def _nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    yield
    assert not Path("sprung").exists()


def test_the_trap_works() -> None:
    pickle.loads(pickle.dumps(Trap()))
    assert Path("sprung").exists()
    Path("sprung").rmdir()


def refused(path: str, said: str) -> None:
    more: Any = {"clients": 3, "partition": "iid"} if path.endswith("npz") else {}
    with pytest.raises(GlocalError, match=said) as error:
        glocal.load(path, **more)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "has no rows"),
        ("a,label\n", "has no rows: give a header and a line for each example"),
        ("\n\n", "has no rows"),
        (CSV.replace("a,", "label,", 1), "names a column twice, 'label'"),
        (CSV.replace("a,", ",", 1), "has no name for column 1: name it, or leave it out"),
        (CSV + "1,2\n", "has 2 cells in line 26 and 3 columns"),
        (CSV + "1,2,3,4\n", "has 4 cells in line 26 and 3 columns"),
        (CSV.replace("3,1", "3\0,1"), "it has NUL characters"),
        (CSV.encode("utf-16")[:-1], "is not a readable .csv file in UTF-8"),
        (CSV.encode("utf-16-le"), "it has NUL characters"),
        (CSV + '"1,2,3\n', "is not a readable .csv file"),
        (CSV + "1" * 200_000 + ",1,1\n", "field larger than field limit"),
        (CSV + "1" * 400 + ",1,1\n", "column 'a' is not finite .* in line 26"),
        (CSV + "1" * 5000 + ",1,1\n", "column 'a' is not finite .* in line 26"),
        (CSV + "1," + "1" * 400 + ",1\n", "labels out of range in column .label.: line 26"),
        (CSV + "1," + "1" * 30 + ",1\n", "labels out of range in column .label.: line 26"),
        (CSV + "1,,1\n", "line 26 has no label in column .label."),
        (CSV + "1,1,\n", "line 26 has no client id"),
        ('"a\nb",c\n1,2\n', "no column 'label' for the labels: its columns are a b, c"),
        (random.Random(0).randbytes(2000), "is not a readable .csv file in UTF-8"),
        (pickle.dumps(Trap()), "is not a readable .csv file"),
    ],
    ids=range(21),
)
def test_csv(content: str | bytes, said: str) -> None:
    Path("d.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    refused("d.csv", said)


def test_csv_that_is_odd_and_right() -> None:
    Path("plain.csv").write_text(CSV)
    plain = glocal.load("plain.csv")
    Path("d.csv").write_text("\ufeff" + CSV.replace("\n", "\r\n"), encoding="utf-8")
    assert glocal.load("d.csv").fingerprint == plain.fingerprint
    long = "9" * 400
    Path("d.csv").write_text(CSV.replace(",2\n", f",{long}\n"))
    assert glocal.load("d.csv").names == ("0", "1", long)


def npz(**arrays: Any) -> bytes:
    np.savez("made.npz", **arrays)
    return Path("made.npz").read_bytes()


def zipped(**entries: bytes) -> bytes:
    with zipfile.ZipFile("made.npz", "w") as archive:
        for name, content in entries.items():
            archive.writestr(name.replace("_", "."), content)
    return Path("made.npz").read_bytes()


def claims(shape: str) -> bytes:
    """The header of an array of that shape, and nothing in it."""
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode()


def test_npz() -> None:
    whole = npz(x=X, y=Y)
    huge = claims("(1000000000000,)")
    hidden = bytearray(zipped(x_npy=b"abc", y_npy=b"abc"))
    for name in (b"PK\x03\x04", b"PK\x01\x02"):  # as if by a method of compression nobody has
        hidden[hidden.index(name) + (8 if name[2] == 3 else 10)] = 99
    np.save("array.npy", X)
    cases = [
        (npz(x=np.array([Trap()] * N), y=Y), NPZ),
        (npz(x=X, y=Y.astype(object)), NPZ),
        (pickle.dumps(Trap()), NPZ),
        (pickle.dumps({"x": X, "y": Y}), NPZ),
        (Path("array.npy").read_bytes(), NPZ),
        (random.Random(0).randbytes(2000), NPZ),
        (bytes(hidden), NPZ),
        (zipped(x_npy=huge, y_npy=huge), NPZ),
        (zipped(x_npy=claims("(-1,)"), y_npy=huge), NPZ),
        (zipped(x=b"hello", y=b"there"), "x has no rows"),
        (zipped(hello_txt=b"hello"), "needs the arrays x and y and has hello.txt"),
        (zipped(), "needs the arrays x and y and has none"),
        (npz(x=X), "needs the arrays x and y and has x"),
        (npz(x=X, y=3), "y has no rows"),
        (npz(x=np.zeros(N, [("a", "i4")]), y=Y), "x holds .* where numbers are wanted"),
        (npz(x=(X * 9).astype(int), y=Y), "give them as floats, as in x.astype"),
        *((whole[:cut], NPZ) for cut in (0, 1, 4, 60, len(whole) // 2, len(whole) - 1)),
    ]
    for content, said in cases:
        Path("d.npz").write_bytes(content)
        refused("d.npz", said)


def test_npz_with_bytes_changed_at_random() -> None:
    rng = random.Random(1)
    whole = npz(x=X, y=Y)
    taken = 0
    for _ in range(300):
        changed = bytearray(whole)
        for _ in range(3):
            changed[rng.randrange(len(whole))] = rng.randrange(256)
        Path("d.npz").write_bytes(changed)
        try:
            glocal.load("d.npz", clients=2, partition="iid")
            taken += 1
        except GlocalError as error:
            said = str(error)
            if "\n" in said:
                pytest.fail(said)
    assert 0 < taken < 150


def test_names_that_no_file_can_have() -> None:
    for name in ("x" * 5000 + ".csv", "x" * 5000 + ".npz", "a\0.csv", "\udc80.csv", "."):
        refused(name, r"there is no file|unknown data set|the folder '.' has no data")
    Path("folder.csv").mkdir()
    refused("folder.csv", "there is no file 'folder.csv'")
    for nothing in (3, None, b"x.csv"):
        with pytest.raises(GlocalError, match="is no data set: give the name of one"):
            glocal.load(nothing)  # type: ignore[arg-type]


def header(tensors: Any, data: bytes, length: int | None = None) -> bytes:
    text = json.dumps(tensors).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


WEIGHT = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
BIAS = {"dtype": "F32", "shape": [2], "data_offsets": [24, 32]}


def both(weight: Any = WEIGHT, bias: Any = BIAS) -> Any:
    return {"layers.0.weight": weight, "layers.0.bias": bias}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        random.Random(0).randbytes(500),
        pickle.dumps(Trap()),
        header(both(), b"\0" * 32, length=2**60),
        header(both(), b"\0" * 32, length=2**64 - 1),
        header(both(), b"\0" * 30),
        header(both(bias={**BIAS, "data_offsets": [20, 28]}), b"\0" * 28),
        header(both(bias={**BIAS, "data_offsets": [24, 2**62]}), b"\0" * 32),
        header(both(bias={**BIAS, "data_offsets": [-8, 0]}), b"\0" * 32),
        header(both(weight={**WEIGHT, "shape": [2**40, 2**40]}), b"\0" * 32),
        header(both(weight={**WEIGHT, "dtype": "PICKLE"}), b"\0" * 32),
        header([1, 2], b""),
    ],
    ids=range(13),
)
def test_weights_that_are_no_safetensors(content: bytes) -> None:
    Path("w.safetensors").write_bytes(content)
    model = build("logistic", input_shape=(3,), classes=2)
    with pytest.raises(GlocalError, match=r"the weights in 'w.safetensors' cannot be read") as no:
        load_weights(model, "w.safetensors")
    assert "\n" not in str(no.value)
    assert len(str(no.value)) < 400


def test_more_weights_that_do_not_fit() -> None:
    model = build("logistic", input_shape=(3,), classes=2)
    right = {k: v.detach() for k, v in model.named_parameters()}
    torch.save(right, "torch.safetensors")
    Path("many.safetensors").write_bytes(save({f"a\n{i}": torch.zeros(1) for i in range(999)}))
    wrong = {k: torch.full_like(v, float("nan")) for k, v in right.items()}
    Path("nan.safetensors").write_bytes(save(wrong))
    turned = {k: v.to(torch.complex64) for k, v in right.items()}
    Path("complex.safetensors").write_bytes(save(turned))
    Path("folder").mkdir()
    for given, said in [
        ("torch.safetensors", "cannot be read"),
        ("many.safetensors", "unknown .* and 991 more; give weights of the same model"),
        ("nan.safetensors", "layers.0.weight holds values that are complex, NaN or infinite"),
        ("complex.safetensors", "complex, NaN or infinite"),
        ("folder", "cannot be read"),
        ("x" * 5000, "cannot be read"),
        ("a\0b", "cannot be read"),
        (3, "init=3 holds no weights: give a .safetensors file"),
    ]:
        with pytest.raises(GlocalError, match=said) as no:
            load_weights(model, given)  # type: ignore[arg-type]
        assert "\n" not in str(no.value)
        assert len(str(no.value)) < 500
    load_weights(model, {k: v.double() for k, v in right.items()})
