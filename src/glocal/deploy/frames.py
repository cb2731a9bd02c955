"""Bytes over a Unix socket: a length of eight bytes, then so many bytes.

Nothing but the standard library is imported: the process that Flower starts for every message
uses this, and it should be there at once.
"""

from __future__ import annotations

import socket
import struct
import time
from pathlib import Path

LARGEST = 1 << 31
"""The longest message that is read."""

_LENGTH = struct.Struct(">Q")


class NotThereError(ConnectionError):
    """Nobody listens at the socket, or who did went away before answering."""


def send(connection: socket.socket, content: bytes) -> None:
    """Write one message."""
    connection.sendall(_LENGTH.pack(len(content)))
    connection.sendall(content)


def receive(connection: socket.socket, largest: int = LARGEST) -> bytes:
    """Read one message; raise where the other side went away or announces too much."""
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    if length > largest:
        raise ValueError(f"a message of {length} bytes is longer than the {largest} allowed")
    return _exactly(connection, length)


def ask(path: Path, request: bytes, wait: float) -> bytes:
    """Send a request to the process behind a socket and return its answer.

    A process that is not there, or dies before it answers, may be back in a moment: it is asked
    again for ``wait`` seconds since it was last there. To ask again changes nothing, since an
    answer is a function of the request and of the states that it names.
    """
    until = time.monotonic() + wait
    while True:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.connect(str(path))
                until = time.monotonic() + wait
                send(connection, request)
                return receive(connection)
        except (OSError, NotThereError) as error:
            if time.monotonic() >= until:
                raise NotThereError(f"nobody answers at {path}") from error
            time.sleep(0.2)


def _exactly(connection: socket.socket, length: int) -> bytes:
    content = bytearray()
    while len(content) < length:
        part = connection.recv(min(length - len(content), 1 << 20))
        if not part:
            raise NotThereError("the other side went away")
        content += part
    return bytes(content)
