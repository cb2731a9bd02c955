"""The participant's own process: it has the data, and answers requests over a Unix socket.

It is started once and stays. Whatever Flower runs at the participant reaches it only through the
socket, which belongs to its owner (and group), and gets the bytes of an answer or nothing.
"""

from __future__ import annotations

import os
import socket
import stat
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from glocal.core.errors import GlocalError
from glocal.deploy import audit, frames, wire
from glocal.deploy.node_folder import NodeFolder

SLOWEST = 60.0
"""Seconds that a request may take to arrive; a training may take as long as it likes."""


def listen(path: Path, *, for_group: bool = False) -> socket.socket:
    """A socket that this user (and group) may connect to; one that was left behind is replaced."""
    if len(os.fsencode(path)) > 100:
        raise GlocalError(f"the path of the socket {path} is too long: use a shorter folder.")
    if path.exists() and not stat.S_ISSOCK(path.stat().st_mode):
        raise GlocalError(f"{path} is no socket: remove it, or use another folder.")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    path.unlink(missing_ok=True)
    before = os.umask(0o117 if for_group else 0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    listener.listen(4)
    return listener


def serve(listener: socket.socket, answer: Callable[[bytes], bytes]) -> None:
    """Answer requests for ever, one at a time; who connects and says nothing holds up nobody."""
    one_at_a_time = threading.Lock()

    def reply(connection: socket.socket) -> None:
        with connection, suppress(OSError, ValueError):
            connection.settimeout(SLOWEST)
            request = frames.receive(connection)
            with one_at_a_time:
                content = answer(request)
            frames.send(connection, content)

    while True:
        connection, _ = listener.accept()
        threading.Thread(target=reply, args=(connection,), daemon=True).start()


def run(folder: NodeFolder) -> None:
    """Load the data and answer for ever; every answer is recorded before it leaves."""
    from glocal.deploy.counting import Counting
    from glocal.deploy.node import Node
    from glocal.deploy.schema_plan import SchemaPlan

    plan = folder.approved_plan()
    node = (
        Counting(folder.table(plan), folder.home, _note)
        if isinstance(plan, SchemaPlan)
        else Node(plan, folder.federation(plan), folder.home, note=_note)
    )

    def answer(request: bytes) -> bytes:
        content = node.answer(request)
        audit.record(folder.audit_file, content, kind=wire.decode(content).kind)
        return content

    serve(listen(folder.socket, for_group=folder.apart is not None), answer)


def _note(text: str) -> None:
    """What went wrong, in full: it is for this participant's log alone."""
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {text}", file=sys.stderr, flush=True)


def main() -> None:
    """Run the node of the folder that is the only argument; the exit code is 2 for bad input."""
    try:
        run(NodeFolder(Path(sys.argv[1])))
    except GlocalError as error:
        print(f"glocal: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
