"""The record of what left a machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from glocal.deploy import audit


def test_a_line_cut_short_takes_no_other_with_it(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    audit.record(file, b"one", kind="update")
    with file.open("ab") as lines:
        lines.write('{"at": "ö'.encode()[:-1])
    audit.record(file, b"three", kind="update")
    audit.record(file, b"four!", kind="update")
    assert [line["bytes"] for line in audit.read(file)] == [3, 5, 5]


def test_a_line_is_on_disk_before_the_message_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, flushed = tmp_path / "audit.jsonl", []
    monkeypatch.setattr(os, "fsync", lambda handle: flushed.append(file.read_bytes()))
    audit.record(file, b"one", kind="update")
    assert flushed
    assert flushed[0] == file.read_bytes()
