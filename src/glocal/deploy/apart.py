"""The SuperNode as another user than the node: a folder with all that it needs, and nothing else.

What Flower runs at a participant may be anybody's who reaches the server. Run by a user of its own
it reads neither the data nor the node's folder. The two share a folder, which is the node's user's
and has the other's group: the key, the server's certificate and address, and the socket.

``python -m glocal.deploy.apart FOLDER`` is that user's side.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from pathlib import Path

from glocal.core import files
from glocal.core.errors import GlocalError
from glocal.deploy import flower
from glocal.deploy.server_check import is_there
from glocal.deploy.supervisor import Child, free_port, kept

PAUSE = 5.0
"""Seconds before the SuperNode is started again."""


class ApartFolder:
    """The files that a node shares with its SuperNode."""

    def __init__(self, path: Path) -> None:
        self.path, self.socket = path, path / "socket"
        self.key, self.authority = path / "key", path / "ca.crt"
        self.connection_file = path / "connection.json"

    def check(self) -> None:
        """Refuse a folder that its group cannot enter, or that others can."""
        advice = "sudo install -d -o $USER -g GROUP -m 2750"
        if not self.path.is_dir():
            raise GlocalError(f"there is no folder {self.path}: make it, {advice} {self.path}.")
        about = self.path.stat()
        right = stat.S_IMODE(about.st_mode) == 0o2750 and about.st_uid == os.getuid()
        if not right or about.st_gid == os.getgid():
            raise GlocalError(
                f"{self.path} must be yours, of the group of the user who runs the SuperNode, and "
                f"closed to others: make a new one for it, {advice} FOLDER."
            )

    def write(self, address: str, authority: bytes, key: bytes) -> None:
        """Put in what the SuperNode needs; new files have the folder's group."""
        self.check()
        about = files.dump({"address": address})
        for file, content in (
            (self.key, key),
            (self.authority, authority),
            (self.connection_file, about),
        ):
            files.write(file, content)
            file.chmod(0o640)

    @property
    def address(self) -> str:
        """Where the server is."""
        try:
            return str(json.loads(self.connection_file.read_text(encoding="utf-8"))["address"])
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise GlocalError(
                f"{self.path} is no folder of a SuperNode that you may read: give the one that was "
                "made by glocal deploy join --apart."
            ) from error


def supernode(folder: ApartFolder, home: Path) -> Child:
    """Flower's SuperNode, which hands bytes to the node's socket."""
    address = folder.address
    files.make_folder(home).chmod(0o700)

    def command() -> list[str]:
        where = (address, folder.authority, folder.key)
        return flower.supernode(*where, free_port(), folder.socket)

    return Child(command, flower.environment(home), home / "supernode.log", PAUSE)


def run(folder: ApartFolder, home: Path) -> None:
    """Keep the SuperNode running for ever, while the server is there."""
    child, address = supernode(folder, home), folder.address
    with kept(child):
        while True:
            if child.running or is_there(address, folder.authority):
                child.keep()
            time.sleep(1.0)


def main() -> None:
    """Run the SuperNode of the folder that is the only argument, until it is ended."""
    try:
        if len(sys.argv) != 2:
            raise GlocalError("give the folder that was made by glocal deploy join --apart.")
        home = Path(os.environ.get("FLWR_HOME") or Path.home() / ".glocal-supernode")
        run(ApartFolder(Path(sys.argv[1]).absolute()), home)
    except GlocalError as error:
        print(f"glocal: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
