"""HTTP: requests checked and handed to the site, answers written with their headers."""

from __future__ import annotations

import errno
import socket
import socketserver
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from glocal.core.errors import GlocalError, shown
from glocal.report import page
from glocal.report.live.access import HEADERS, Access
from glocal.report.live.site import Answer, Site, plain_text
from glocal.report.live.watched import Watched

IDLE = 60.0
"""Seconds after which a connection that says nothing is closed."""


@contextmanager
def serving(watched: Watched, host: str, port: int) -> Iterator[Server]:
    """A server of the pages of a folder, which answers once it is told to serve."""

    def report(folders: Sequence[Path]) -> str:
        return page.render(page.collect(folders), live=True)

    server = Server(Site(watched, report), host, port)
    try:
        yield server
    finally:
        server.server_close()


class Server(ThreadingHTTPServer):
    """A server of one site, at one address."""

    daemon_threads = True

    def __init__(self, site: Site, host: str, port: int) -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            self.address_family = found[0][0]
            super().__init__((host, port), _Handler)
        except (OSError, UnicodeError, OverflowError) as error:
            raise _refusal(host, port, error) from error
        self.site = site
        self.access = Access.to(host, self.server_address[1])

    def server_bind(self) -> None:
        """Bind, and ask no name server for this machine's name."""
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a browser that went away is no error."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    timeout = IDLE

    def do_GET(self) -> None:
        self._write(self._answer())

    do_HEAD = do_GET  # noqa: N815 - the names that http.server calls

    def _answer(self) -> Answer:
        access, headers = self.server.access, self.headers
        if headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in headers:
            self.close_connection = True  # what follows is not read
        if (refusal := access.refusal(headers)) is not None:
            return plain_text(HTTPStatus.FORBIDDEN, refusal)
        if (moved := access.moved(self.path)) is not None:
            return Answer(HTTPStatus.SEE_OTHER, headers=moved)
        if not access.admits(headers.get("Cookie", "")):
            return plain_text(
                HTTPStatus.FORBIDDEN, "Open the address that glocal ui printed, with its token."
            )
        try:
            return self.server.site.answer(self.path, headers.get("If-None-Match"))
        except Exception as error:  # one page that cannot be made does not end the others
            return plain_text(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                f"This page could not be made ({type(error).__name__}: {error}).",
            )

    def _write(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in {**HEADERS, **answer.headers}.items():
            self.send_header(name, value)
        if answer.status != HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Length", str(len(answer.body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what is not understood, other methods than GET and HEAD among it."""
        self.close_connection = True
        if code == HTTPStatus.NOT_IMPLEMENTED:
            code = HTTPStatus.METHOD_NOT_ALLOWED
        answer = plain_text(HTTPStatus(code), "Only GET and HEAD are answered here.")
        self._write(Answer(answer.status, answer.body, {**answer.headers, "Allow": "GET, HEAD"}))

    def version_string(self) -> str:
        """What the server calls itself, without versions."""
        return "glocal"

    def log_message(self, *about: Any) -> None:
        """Print nothing: pages ask every second."""


def _refusal(host: str, port: int, error: Exception) -> GlocalError:
    """The sentence for an address that cannot be listened at."""
    code = getattr(error, "errno", None)
    if code == errno.EADDRINUSE:
        return GlocalError(
            f"port {port} is in use: choose another with --port (0: any that is free)."
        )
    if code == errno.EACCES:
        return GlocalError(f"port {port} may not be used by you: choose one above 1023.")
    return GlocalError(
        f"--host {shown(host)} is no address of this machine ({error}): leave it out, or give "
        "0.0.0.0 for all of its addresses."
    )
