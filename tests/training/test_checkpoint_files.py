"""Checkpoint files: whole or not at all, and never taken for what they are not."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import random
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.core.types import Tree
from glocal.training.checkpoint_files import CheckpointFiles

FACTS = {"round": 3, "history": [{"loss": 0.1 + 0.2, "who": "Ærøskøbing", "nan": float("inf")}]}


def state(seed: int = 0) -> Tree:
    g = torch.Generator().manual_seed(seed)
    return {
        "server": {
            "params": {
                "b.weight": torch.randn(7, 5, generator=g),
                "a.bias": torch.randn(3, generator=g),
            },
            "opt": {},
            "count": torch.tensor(12),
            "flags": torch.tensor([True, False]),
            "nothing": torch.zeros(0, 4),
            "half": torch.randn(3, generator=g).to(torch.bfloat16),
        },
        "clients": {"a/b": torch.arange(4), "a": {"b": torch.arange(4.0)}},
    }


def equal(a: Tree, b: Tree) -> bool:
    def order(t: Tree) -> Any:
        return [(k, order(v) if isinstance(v, dict) else None) for k, v in t.items()]

    same = order(a) == order(b) and tree.structure(a) == tree.structure(b)
    return same and all(map(torch.equal, tree.leaves(a), tree.leaves(b)))


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    series = CheckpointFiles(tmp_path / "deep" / "down")
    assert series.newest() is None
    series.write(3, FACTS, state())
    kept = series.newest()
    assert kept is not None
    assert (kept.number, kept.facts) == (3, FACTS)
    assert equal(kept.trees, state())
    assert not equal(kept.trees, state(seed=1))


def test_a_file_is_named_by_its_checksum_and_others_can_read_it(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    CheckpointFiles(tmp_path).write(12, FACTS, state())
    (file,) = tmp_path.iterdir()
    assert file.name == f"00000012-{hashlib.sha256(file.read_bytes()).hexdigest()}.safetensors"
    assert torch.equal(load_file(file)["server/count"], torch.tensor(12))


def test_the_newest_few_are_kept(tmp_path: Path) -> None:
    series = CheckpointFiles(tmp_path, keep=3)
    for n in (1, 2, 3, 10, 11):
        series.write(n, {}, state(n))
    assert [int(f.name[:8]) for f in sorted(tmp_path.iterdir())] == [3, 10, 11]


def test_each_of_a_thousand_flipped_bytes_is_noticed(tmp_path: Path) -> None:
    notes: list[str] = []
    series = CheckpointFiles(tmp_path, note=notes.append)
    series.write(1, FACTS, state(1))
    series.write(2, FACTS, state(2))
    newest = max(tmp_path.iterdir())
    good = newest.read_bytes()
    draw = random.Random(0)
    # Every byte of a small file, then some again with another bit, until there are a thousand.
    places = list(range(len(good)))
    places += draw.choices(places, k=max(0, 1000 - len(places)))
    assert len(places) >= 1000
    for place in places:
        bad = bytearray(good)
        bad[place] ^= 1 << draw.randrange(8)
        newest.write_bytes(bad)
        kept = series.newest()
        assert kept is not None
        assert kept.number == 1
        assert torch.equal(kept.trees["server"]["count"], torch.tensor(12))
    assert len(notes) == len(places)
    assert all("00000001 is used instead" in note for note in notes)
    newest.write_bytes(good)
    kept = series.newest()
    assert kept is not None
    assert kept.number == 2


@pytest.mark.parametrize("cut", [0, 1, 7, 8, 100, -1])
def test_a_file_cut_short_is_passed_over(tmp_path: Path, cut: int) -> None:
    notes: list[str] = []
    series = CheckpointFiles(tmp_path, note=notes.append)
    series.write(5, {}, state())
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:cut])
    assert series.newest() is None
    assert "begins anew" in notes[0]


class Evil:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (open, ("/tmp/glocal-was-here", "w"))


def hostile() -> dict[str, bytes]:
    def file(header: Any, data: bytes = b"") -> bytes:
        head = json.dumps(header).encode()
        return struct.pack("<Q", len(head)) + head + data

    tensor = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    meta = {"facts": "{}", "trees": '{"a": "a"}'}
    return {
        "empty": b"",
        "pickle": pickle.dumps(Evil()),
        "zip": b"PK\x03\x04" + bytes(40),
        "huge header": struct.pack("<Q", 1 << 60) + b"{}",
        "no metadata": file({"a": tensor}, bytes(8)),
        "metadata of another kind": file({"__metadata__": {"facts": "[1]", "trees": "3"}}),
        "not json": file({"__metadata__": {"facts": "{", "trees": "{}"}}),
        "a name that is not there": file(
            {"__metadata__": {"facts": "{}", "trees": '{"a": "b"}'}, "a": tensor}, bytes(8)
        ),
        "too little data": file({"__metadata__": meta, "a": tensor}, bytes(4)),
        "too much data": file({"__metadata__": meta, "a": tensor}, bytes(12)),
        "offsets that overlap": file(
            {"__metadata__": meta, "a": tensor, "b": {**tensor, "data_offsets": [4, 12]}}, bytes(12)
        ),
        "a shape that does not fit": file(
            {"__metadata__": meta, "a": {**tensor, "shape": [1 << 40]}}, bytes(8)
        ),
        "negative": file({"__metadata__": meta, "a": {**tensor, "shape": [-2]}}, bytes(8)),
        "deep": file({"__metadata__": {"facts": "{}", "trees": '{"a":' * 5000 + "1" + "}" * 5000}}),
    }


@pytest.mark.parametrize("what", hostile())
def test_a_foreign_file_with_a_right_checksum_is_refused(tmp_path: Path, what: str) -> None:
    notes: list[str] = []
    content = hostile()[what]
    name = f"00000001-{hashlib.sha256(content).hexdigest()}.safetensors"
    (tmp_path / name).write_bytes(content)
    assert CheckpointFiles(tmp_path, note=notes.append).newest() is None
    assert len(notes) == 1
    assert "damaged" in notes[0]
    assert not Path("/tmp/glocal-was-here").exists()


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = tmp_path_factory.mktemp("random")
    (folder / f"00000001-{hashlib.sha256(content).hexdigest()}.safetensors").write_bytes(content)
    assert CheckpointFiles(folder).newest() is None


def test_what_cannot_be_written_leaves_the_last_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    series = CheckpointFiles(tmp_path)
    series.write(1, {}, state(1))

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(GlocalError, match=r"No space left on device.*make room"):
        series.write(2, {}, state(2))
    assert [int(f.name[:8]) for f in tmp_path.iterdir()] == [1]
    kept = series.newest()
    assert kept is not None
    assert kept.number == 1


def test_other_files_are_let_be(tmp_path: Path) -> None:
    series = CheckpointFiles(tmp_path, keep=1)
    (tmp_path / "mine.txt").write_text("")
    series.write(1, {}, state())
    series.write(2, {}, state())
    assert sorted(f.name for f in tmp_path.iterdir())[1:] == ["mine.txt"]


def test_only_their_owner_can_read_them(tmp_path: Path) -> None:
    """Also where a part that was open to all is left over."""
    (tmp_path / ".part").touch(0o644)
    before = os.umask(0)
    try:
        CheckpointFiles(tmp_path).write(1, {}, state())
    finally:
        os.umask(before)
    assert [file.stat().st_mode & 0o777 for file in tmp_path.iterdir()] == [0o600]
