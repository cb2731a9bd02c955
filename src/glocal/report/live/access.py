"""Who may ask: browsers on this machine, or with a token, that mean this server and no other.

A page on the internet can make a browser ask a server on its user's own machine, and by a name that
leads there (DNS rebinding) even read the answer. Hence a request must name this server in its
``Host``, and where a page sent it (``Origin``), that page must be this server's own.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from dataclasses import dataclass
from email.message import Message
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl

MOST_FIELDS = 100
"""Of the query of an address."""

HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Of every answer; a page has its content security policy besides."""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    address = _address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


@dataclass(frozen=True)
class Access:
    """What a request must have, of a server that listens at ``host``."""

    host: str
    port: int
    token: str | None
    """None where only this machine reaches the server."""

    @classmethod
    def to(cls, host: str, port: int) -> Access:
        """With a fresh token, unless it is for this machine alone."""
        return cls(host, port, None if is_loopback(host) else secrets.token_urlsafe(32))

    @property
    def url(self) -> str:
        """What to open in a browser, the token in it."""
        address = _address(self.host)
        shown = self.host
        if address is not None and address.is_unspecified:
            shown = socket.gethostname()
        elif address is not None and address.version == 6:
            shown = f"[{address}]"
        return f"http://{shown}:{self.port}/" + (f"?token={self.token}" if self.token else "")

    @property
    def cookie_name(self) -> str:
        """By the port: a host's servers share its cookies."""
        return f"glocal_{self.port}"

    @property
    def cookie(self) -> str:
        """What keeps the token in the browser, out of reach of scripts and of other sites."""
        return f"{self.cookie_name}={self.token}; Path=/; HttpOnly; SameSite=Strict"

    def refusal(self, headers: Message) -> str | None:
        """Why a request is not answered whoever sends it; none if it means this server."""
        hosts = headers.get_all("Host", [])
        host = hosts[0] if len(hosts) == 1 else ""
        if not self._is_own(host):
            return "This server is not asked by that name: open the address that it printed."
        origin = headers.get("Origin")
        if origin is not None and origin.lower() != f"http://{host}".lower():
            return "Other sites may not ask this server."
        from_here = headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")
        if not from_here and headers.get("Sec-Fetch-Mode") != "navigate":
            return "Other sites may not ask this server."
        return None

    def admits(self, cookies: str) -> bool:
        """Whether the token is in a cookie, or none is needed."""
        return self.token is None or self.is_token(self._kept(cookies))

    def moved(self, target: str) -> dict[str, str] | None:
        """The headers that keep the token of an address in a cookie, and lead to the list."""
        if not self.is_token(token_in(target)):
            return None
        return {"Location": "/", "Set-Cookie": self.cookie}

    def is_token(self, text: str | None) -> bool:
        """Whether this is the token, in a time that does not say how much of it is right."""
        if self.token is None or text is None:
            return False
        return hmac.compare_digest(text.encode("utf-8", "replace"), self.token.encode())

    def _kept(self, cookies: str) -> str | None:
        try:
            kept = SimpleCookie(cookies).get(self.cookie_name)
        except CookieError:
            return None
        return None if kept is None else kept.value

    def _is_own(self, host: str) -> bool:
        """Whether a ``Host`` is one by which this server is reached; the port may be a tunnel's.

        An address says itself where it leads: only a name can be made to lead elsewhere.
        """
        name = _without_port(host)
        if name is None:
            return False
        address = _address(name)
        if is_loopback(self.host):
            return is_loopback(name)
        own = {self.host.lower(), "localhost", socket.gethostname().lower()}
        return address is not None or name in own


def token_in(target: str) -> str | None:
    """The token that an address has in it."""
    try:
        fields = parse_qsl(target.partition("?")[2], max_num_fields=MOST_FIELDS)
    except ValueError:
        return None
    return next((text for name, text in fields if name == "token"), None)


def _without_port(host: str) -> str | None:
    """The name or address of a ``Host``; none if it is no host and port."""
    if host.startswith("["):
        name, closed, port = host[1:].partition("]")
        if not closed or _address(name) is None or port[:1] not in ("", ":"):
            return None
        port = port[1:]
    else:
        name, _, port = host.partition(":")
    fine = name and (not port or (port.isascii() and port.isdigit()))
    return name.lower() if fine else None


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
