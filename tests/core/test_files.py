"""Files: what is no plain file is written to, never replaced."""

from __future__ import annotations

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


def test_a_device_that_takes_nothing_is_an_error(tmp_path: Path) -> None:
    link = tmp_path / "full"
    link.symlink_to("/dev/full")  # so that what goes wrong goes wrong here
    with pytest.raises(NoRoomError, match=r"full cannot be written \(No space left on device\)"):
        write(link, b"x")
    assert link.is_symlink()
    assert is_special(Path("/dev/full"))
    assert not is_special(tmp_path / "not there")
