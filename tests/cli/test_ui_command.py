"""``glocal ui``: what cannot be served is one sentence, and Ctrl-C ends it quietly."""

from __future__ import annotations

import json
import socket
import threading
import urllib.request
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import Command
from deploy.participants import write_settings, write_tables
from glocal.core import files
from glocal.deploy.init import plan_of
from glocal.deploy.server_folder import ServerFolder, Settings
from glocal.report.live.server import Server


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "there is no folder runs/ here"),
        (("nowhere",), "there is no folder nowhere: check its name."),
        (("a-file",), "there is no folder a-file: check its name."),
        (("a" * 300,), "cannot be used"),
        ((".", "--host", "192.0.2.1"), "--host '192.0.2.1' is no address of this machine"),
        ((".", "--host", ""), "--host '' is no address of this machine"),
        ((".", "--port", "70000"), "70000 is not in the range"),
    ],
)
def test_bad_input_is_one_sentence(command: Command, words: tuple[str, ...], said: str) -> None:
    Path("a-file").write_text("")
    code, out, err = command("ui", *words)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_a_port_in_use_is_said(command: Command, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = command("ui", tmp_path, "--port", port)
    assert code == 2
    assert f"port {port} is in use: choose another with --port (0: any that is free)." in err


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str], Any]], list[Any]]:
    """Do something with the server's address while it serves, then press Ctrl-C."""

    def during(act: Callable[[str], Any]) -> list[Any]:
        results: list[Any] = []

        def serve(self: Server) -> None:
            thread = threading.Thread(target=Server.__mro__[1].serve_forever, args=(self, 0.01))
            thread.start()
            try:
                results.append(act(self.access.url))
            finally:
                self.shutdown()
                thread.join()
            raise KeyboardInterrupt

        monkeypatch.setattr(Server, "serve_forever", serve)
        return results

    return during


def answered(url: str) -> str:
    with urllib.request.urlopen(url) as answer:
        text: str = answer.read().decode()
    return text


def test_it_serves_until_it_is_interrupted(
    command: Command,
    interrupted: Callable[..., list[Any]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: bool(opened.append(url)))
    pages = interrupted(answered)
    code, out, err = command("ui", tmp_path, "--port", 0, "--open")
    assert code == 0
    assert out.startswith(f"Listening at {opened[0]} (Ctrl-C ends it).")
    assert "open the address yourself" in err
    assert "There are no runs in" in pages[0]


def test_a_server_for_others_prints_a_token_and_takes_no_other(
    command: Command, interrupted: Callable[..., list[Any]], tmp_path: Path
) -> None:
    def statuses(url: str) -> list[int]:
        path, _, token = url.partition("?")
        port = path.rstrip("/").rpartition(":")[2]
        codes = []
        for query in ("", "?token=another", f"?{token}"):
            asked = urllib.request.Request(f"http://127.0.0.1:{port}/{query}")
            opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            try:
                with opener.open(asked) as answer:
                    codes.append(answer.status)
            except urllib.error.HTTPError as error:
                codes.append(error.code)
                error.close()
        return codes

    found = interrupted(statuses)
    code, out, err = command("ui", tmp_path, "--port", 0, "--host", "0.0.0.0")
    assert code == 0
    assert "?token=" in out
    assert "without TLS" in err
    assert found == [[403, 403, 200]]


def test_a_deployment_is_shown(
    command: Command, interrupted: Callable[..., list[Any]], tmp_path: Path
) -> None:
    write_tables(tmp_path)
    folder = ServerFolder(tmp_path / "clinic")
    folder.path.mkdir()
    folder.write_settings(Settings("localhost", 8443, "127.0.0.1", 10.0, 0.5, 10.0))
    files.write(folder.plan_file, files.dump(plan_of(write_settings(tmp_path)).to_json()))
    keys = {"north": "key-1", "south": "key-1", "east": "key-2"}
    rows = [{"client": name, "key": key} for name, key in keys.items()]
    folder.roster_file.write_text(json.dumps(rows))
    line = {"round": 1, "cohort": 3, "refused": {"east": "length"}, "quarantined": ["east"]}
    folder.history_file.write_text(json.dumps(line) + "\n")
    pages = interrupted(lambda url: (answered(url), answered(f"{url}deployment/clinic")))
    command("ui", tmp_path, "--port", 0)
    listed, page = pages[0]
    assert '<a href="/deployment/clinic">' in listed
    assert "fedavg" in listed
    assert "node 1" in page
    assert "1 × length" in page
    assert "in quarantine" in page
