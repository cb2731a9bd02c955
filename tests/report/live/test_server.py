"""What is answered over HTTP: pages by their stamps, refusals in a sentence, and nothing else."""

from __future__ import annotations

import http.client
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from glocal.core.errors import GlocalError
from glocal.report.live.access import Access
from glocal.report.live.server import Server
from glocal.report.live.site import Site
from glocal.report.live.watched import Watched
from report.live.live_folders import deployment, finish, made

Answer = tuple[int, dict[str, str], str]


def report(folders: Sequence[Path]) -> str:
    """A stand-in for the report."""
    names = ", ".join(folder.name for folder in folders)
    return (
        "<html><head></head><body><header></header>"
        f'<main id="main" tabindex="-1">The report of {names}.</main></body></html>'
    )


class Asked:
    """A server that runs in a thread."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.port = server.access.port
        self.reports: list[str] = []

    def __call__(self, path: str, method: str = "GET", **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers=named)
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        return answer.status, dict(answer.getheaders()), body


@contextmanager
def asked(root: Path, access: Access | None = None) -> Iterator[Asked]:
    counted: list[str] = []

    def counting(folders: Sequence[Path]) -> str:
        counted.append(",".join(folder.name for folder in folders))
        return report(folders)

    server = Server(Site(Watched(root, fresh=0.0), counting), "127.0.0.1", 0)
    ask = Asked(server)
    ask.reports = counted
    server.access = access or server.access
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield ask
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made(tmp_path / "root" / "a")
    made(tmp_path / "root" / "b", "ditto", done=2, finished=False)
    return tmp_path / "root"


@pytest.fixture
def ask(root: Path) -> Iterator[Asked]:
    with asked(root) as server:
        yield server


def test_the_list_has_all_runs_and_strict_headers(ask: Asked) -> None:
    status, headers, body = ask("/")
    assert status == 200
    assert '<a href="/report/a">' in body
    assert "stopped" in body
    assert 'value="2" max="4" aria-label="round 2 of 4"' in body
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert not any(name.lower().startswith("access-control") for name in headers)


def test_a_page_is_sent_again_only_when_what_it_shows_changed(ask: Asked, root: Path) -> None:
    _, headers, body = ask("/report/b")
    assert "The report of b." in body
    stamp = headers["ETag"]
    assert ask("/report/b", If_None_Match=stamp)[0] == 304
    finish(root / "a")  # another's
    assert ask("/report/b", If_None_Match=stamp)[0] == 304
    assert ask.reports == ["b"]
    finish(root / "b", "ditto")
    status, headers, _ = ask("/report/b", If_None_Match=stamp)
    assert status == 200
    assert headers["ETag"] != stamp
    ask("/report/b")
    assert ask.reports == ["b", "b"]


def test_head_answers_without_a_body(ask: Asked) -> None:
    status, headers, body = ask("/", "HEAD")
    assert (status, body) == (200, "")
    assert int(headers["Content-Length"]) == len(ask("/")[2].encode())


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "ANY"])
def test_other_methods_are_refused(ask: Asked, method: str) -> None:
    status, headers, body = ask("/", method)
    assert status == 405
    assert headers["Allow"] == "GET, HEAD"
    assert headers["Content-Type"].startswith("text/plain")
    assert body.count("\n") == 1


@pytest.mark.parametrize(
    "path",
    [
        *("/report", "/report/", "/report/c", "/report/.", "/report/..", "/report/../a"),
        *("/report/a/", "/report//a", "/report/./a", "/report/a/result.json", "/a"),
        *("/report/%2e%2e/outside", "/report/..%2foutside", "/report/..%5coutside"),
        *("/report//etc/passwd", "/report/%2fetc%2fpasswd", "/report/a%00", "/report/linked"),
        *("/../outside", "//etc/passwd", "http://127.0.0.1/", "/deployment/a", "/live.js/x", "/%"),
        "/../src/glocal/report/live/live.js",
    ],
)
def test_nothing_else_is_served(ask: Asked, root: Path, path: str) -> None:
    made(root.parent / "outside")
    os.symlink(root.parent / "outside", root / "linked")
    assert ask(path)[0] == 404
    assert ask.reports == []


def test_a_run_with_a_link_that_leads_out_is_not_reported(ask: Asked, root: Path) -> None:
    secret = root.parent / "secret.png"
    secret.write_text("secret")
    os.symlink(secret, root / "a" / "synthetic.png")
    for path in ("/report/a", "/compare?run=a&run=b"):
        status, _, body = ask(path)
        assert status == 200
        assert "synthetic.png is a link that leads out of the folder" in body
    assert ask.reports == []


def test_foreign_names_and_pages_are_refused(ask: Asked) -> None:
    assert ask("/", Host="evil.org")[0] == 403
    assert ask("/", Origin="http://evil.org")[0] == 403
    assert ask("/live.js", Host="evil.org")[0] == 403
    own = f"127.0.0.1:{ask.server.access.port}"
    assert ask("/", Host=own, Origin=f"http://{own}")[0] == 200


def test_an_open_server_takes_the_token_and_keeps_it_in_a_cookie(root: Path) -> None:
    with asked(root, Access("0.0.0.0", 1, "the-token")) as ask:
        assert ask("/")[0] == 403
        assert ask("/live.js")[0] == 403
        assert ask("/?token=another")[0] == 403
        status, headers, _ = ask("/?token=the-token")
        assert (status, headers["Location"]) == (303, "/")
        assert ask("/", Cookie=headers["Set-Cookie"].split(";")[0])[0] == 200


def test_runs_are_set_side_by_side(ask: Asked) -> None:
    status, _, body = ask("/compare?run=a&run=b&run=a")
    assert status == 200
    assert "A: a" in body
    assert "worst 10 %" in body
    assert ask.reports == ["a,b"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", "0 runs chosen"),
        ("?run=a", "1 run chosen"),
        ("?run=a&run=b&run=c", "Not there (any more): c."),
        ("?run=a&run=../outside", "Not there (any more): ../outside."),
        ("?" + "&".join(f"run={i}" for i in range(1000)), "0 runs chosen"),
    ],
)
def test_what_cannot_be_compared_is_said(ask: Asked, query: str, said: str) -> None:
    status, _, body = ask(f"/compare{query}")
    assert status == 200
    assert said in body


@pytest.mark.parametrize(
    "name",
    ["<script>alert(1)<", "\"'><img src=x onerror=alert(1)>", "a\nb", "&amp;", "ü\udcff", "a%2fb"],
)
def test_any_name_is_text_and_has_its_page(ask: Asked, root: Path, name: str) -> None:
    made(root / name, name.replace("\udcff", ""))
    _, _, body = ask("/")
    assert "<script>alert" not in body
    assert "<img" not in body
    links = [part.split('"')[0] for part in body.split('href="')[1:]]
    (link,) = (each for each in links if each.startswith("/report/") and each[8:] not in "ab")
    assert ask(link)[0] == 200
    assert ask.reports == [os.fsencode(name).decode("utf-8", "surrogateescape")]
    assert ask(f"/compare?run={link[8:].replace('%', '%25')}&run=a")[0] == 200


def test_what_cannot_be_reported_says_why_and_the_others_are_answered(
    ask: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(folders: Sequence[Path]) -> str:
        raise GlocalError("there is <nothing> here.")

    monkeypatch.setattr(ask.server.site, "_report", broken)
    status, _, body = ask("/report/a")
    assert status == 200
    assert "there is &lt;nothing&gt; here." in body

    def defect(folders: Sequence[Path]) -> str:
        raise RuntimeError("a defect")

    monkeypatch.setattr(ask.server.site, "_report", defect)
    assert ask("/report/b")[0] == 500
    assert ask("/")[0] == 200


def test_a_deployment_has_a_page(root: Path) -> None:
    found = {
        "state": "running",
        "address": "127.0.0.1:8443",
        "method": "ditto",
        "digest": "d" * 64,
        "rounds": 5,
        "rounds_done": 3,
        "clients": ["Köln", "<b>"],
        "sent_bytes": 1234,
        "nodes": [["Köln"], ["<b>"]],
        "history": [
            {"round": 1, "cohort": 2, "train_loss": 0.5, "absent": {"Köln": "no answer in time"}},
            {"round": 2, "cohort": 2, "train_loss": 0.4, "refused": {"<b>": "length"}},
            {"round": 3, "cohort": 1, "train_loss": 0.3, "quarantined": ["<b>"]},
        ],
    }
    deployment(root / "clinic")
    site = Site(Watched(root, lambda folder: found, fresh=0.0), report)
    listed = site.answer("/").body.decode()
    assert '<a href="/deployment/clinic">' in listed
    assert "round 3 of 5" in listed
    page = site.answer("/deployment/clinic").body.decode()
    assert "1 × length" in page
    assert "1 × no answer in time" in page
    assert "in quarantine" in page
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    assert site.answer("/report/clinic").status == 404


def test_a_port_in_use_and_an_address_of_others_are_one_sentence(root: Path) -> None:
    site = Site(Watched(root), report)
    with asked(root) as ask, pytest.raises(GlocalError, match="is in use: choose another"):
        Server(site, "127.0.0.1", ask.server.access.port)
    for host in ("192.0.2.1", "no such host", "a" * 300, "\udcff"):
        with pytest.raises(GlocalError, match="is no address of this machine"):
            Server(site, host, 0)
