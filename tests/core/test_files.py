"""Files: what is no plain file is written to, never replaced."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from glocal.core.errors import NoRoomError
from glocal.core.files import is_special, write


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """As /dev/stdout is one, and a device must not become a file."""
    link, target = tmp_path / "link", tmp_path / "target"
    target.write_bytes(b"old and longer")
    link.symlink_to(target)
    write(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    write(target, b"newer")
    assert link.read_bytes() == b"newer"
    begun = target.stat().st_ino
    write(link, b"newest")
    assert target.stat().st_ino != begun  # another file in its place, never half of one
    new = tmp_path / "new"
    new.symlink_to("of the future")
    write(new, b"x")
    assert new.is_symlink()
    assert (tmp_path / "of the future").read_bytes() == b"x"


def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write(pipe, b"through")
    assert os.read(reader, 99) == b"through"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_file_that_is_open_stays_the_same(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out:
        write(Path(f"/proc/self/fd/{out.fileno()}"), b"x")
        assert os.fstat(out.fileno()).st_nlink == 1  # no other took its name
    assert (tmp_path / "out").read_bytes() == b"x"


def test_a_device_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = tmp_path / "device"
    device.write_bytes(b"")
    begun = device.stat()
    as_device = os.stat_result((stat.S_IFCHR | 0o600, *begun[1:]))
    monkeypatch.setattr(Path, "stat", lambda path, **_: as_device)
    write(device, b"x")
    assert os.stat(device).st_ino == begun.st_ino


def test_a_device_that_takes_nothing_is_an_error(tmp_path: Path) -> None:
    link = tmp_path / "full"
    link.symlink_to("/dev/full")  # so that what goes wrong goes wrong here
    with pytest.raises(NoRoomError, match=r"full cannot be written \(No space left on device\)"):
        write(link, b"x")
    assert link.is_symlink()
    assert is_special(Path("/dev/full"))
    assert not is_special(tmp_path / "not there")
