"""The SuperNode as another user: what it may read, and what it may not."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from glocal.core.errors import GlocalError
from glocal.deploy.apart import ApartFolder
from glocal.deploy.node_folder import Approved, NodeFolder


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder of another group, such as only root, or who is in two, can make."""
    others = [*set(os.getgroups()) - {os.getgid()}, *([os.getgid() + 1] * (os.getuid() == 0))]
    if not others:
        pytest.skip("this user is in one group")
    folder = tmp_path / "shared"
    folder.mkdir()
    os.chown(folder, -1, others[0])
    folder.chmod(0o2750)
    return folder


def test_what_is_shared_is_for_the_group_alone(shared: Path) -> None:
    folder = ApartFolder(shared)
    folder.write("127.0.0.1:1", b"certificate", b"key")
    assert folder.address == "127.0.0.1:1"
    assert {file.name for file in shared.iterdir()} == {"key", "ca.crt", "connection.json"}
    for file in shared.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o640
        assert file.stat().st_gid == shared.stat().st_gid


def test_the_node_listens_where_its_supernode_can_reach_it(shared: Path, tmp_path: Path) -> None:
    node = NodeFolder(tmp_path)
    node.write_approved(Approved.now("a", "127.0.0.1:1", "digest", "a.csv"))
    assert (node.apart, node.socket) == (None, tmp_path / "socket")
    node.write_approved(Approved.now("a", "127.0.0.1:1", "digest", "a.csv", str(shared)))
    assert node.socket == shared / "socket"


@pytest.mark.parametrize("mode", [0o2755, 0o750, 0o2700])
def test_a_folder_that_others_enter_or_the_group_does_not_is_refused(
    mode: int, shared: Path
) -> None:
    shared.chmod(mode)
    with pytest.raises(GlocalError, match=r"sudo install -d .* -m 2750"):
        ApartFolder(shared).check()


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GlocalError, match="there is no folder"):
        ApartFolder(tmp_path / "none").check()
    words = [sys.executable, "-m", "glocal.deploy.apart", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith(f"glocal: {tmp_path} is no folder of a SuperNode")
    assert done.stderr.count("\n") == 1
