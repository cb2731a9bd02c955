"""The lock of a folder, and systems that have none."""

from __future__ import annotations

import errno
import fcntl
import sys
from pathlib import Path

import pytest

from glocal.core import locks
from glocal.core.errors import GlocalError


def test_one_writer_and_everybody_sees_it(tmp_path: Path) -> None:
    assert not locks.held(tmp_path)
    with locks.hold(tmp_path):
        assert locks.held(tmp_path)
        with pytest.raises(GlocalError, match="another process is writing"), locks.hold(tmp_path):
            pass
    assert not locks.held(tmp_path)


def without_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)


def without_support(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(file: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)


@pytest.mark.parametrize("take", [without_module, without_support])
def test_where_there_are_no_locks_nobody_counts_as_writing(
    take, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / locks.NAME).touch()
    take(monkeypatch)
    assert not locks.held(tmp_path)
    with locks.hold(tmp_path, wait=0):
        assert not locks.held(tmp_path)
