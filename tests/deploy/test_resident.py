"""The socket between what Flower starts and the process that has the data."""

from __future__ import annotations

import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from glocal.core.errors import GlocalError
from glocal.deploy import frames
from glocal.deploy.resident import listen, serve


def started(path: Path, answer: Callable[[bytes], bytes]) -> socket.socket:
    listener = listen(path)
    threading.Thread(target=serve, args=(listener, answer), daemon=True).start()
    return listener


def test_bytes_go_there_and_back(tmp_path: Path) -> None:
    started(tmp_path / "s", lambda request: request[::-1])
    long = bytes(range(256)) * 20_000
    assert frames.ask(tmp_path / "s", long, 1.0) == long[::-1]
    assert frames.ask(tmp_path / "s", b"", 1.0) == b""


def test_nobody_but_its_owner_connects(tmp_path: Path) -> None:
    listen(tmp_path / "s").close()
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o600
    listen(tmp_path / "s", for_group=True).close()  # the socket that was left is replaced
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o660


def test_where_nobody_listens_asking_ends(tmp_path: Path) -> None:
    with pytest.raises(frames.NotThereError, match="nobody answers"):
        frames.ask(tmp_path / "s", b"question", 0.0)


def test_a_process_that_dies_over_a_request_is_asked_again(tmp_path: Path) -> None:
    first = listen(tmp_path / "s")

    def die() -> None:
        connection, _ = first.accept()
        frames.receive(connection)
        first.close()
        started(tmp_path / "s", lambda request: b"answer to " + request)
        connection.close()

    threading.Thread(target=die, daemon=True).start()
    assert frames.ask(tmp_path / "s", b"it", 10.0) == b"answer to it"


def test_more_than_is_allowed_is_not_read(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        frames.send(ours, b"12345")
        with pytest.raises(ValueError, match="longer than the 4 allowed"):
            frames.receive(theirs, largest=4)


def test_who_says_nothing_holds_up_nobody(tmp_path: Path) -> None:
    started(tmp_path / "s", lambda request: request)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(tmp_path / "s"))
        assert frames.ask(tmp_path / "s", b"x", 1.0) == b"x"


def test_a_file_is_not_taken_for_a_socket(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("mine")
    with pytest.raises(GlocalError, match="is no socket"):
        listen(tmp_path / "s")
    with pytest.raises(GlocalError, match="too long"):
        listen(tmp_path / ("s" * 120))
    assert (tmp_path / "s").read_text() == "mine"
