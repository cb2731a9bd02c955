"""Who is answered: by the server's own name, from its own pages, and with the token."""

from __future__ import annotations

from email.message import Message

import pytest

from glocal.report.live.access import Access, is_loopback


def headers(**fields: str) -> Message:
    """The headers of a request; ``_`` in a name is ``-``."""
    message = Message()
    for name, value in fields.items():
        message[name.replace("_", "-")] = value
    return message


HERE = Access.to("127.0.0.1", 8642)
OPEN = Access("0.0.0.0", 8642, "the-token")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost", "LOCALHOST"])
def test_a_loopback_address_needs_no_token(host: str) -> None:
    assert is_loopback(host)
    assert Access.to(host, 1).token is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", "localhost.org"])
def test_an_address_that_others_reach_has_a_token_of_its_own(host: str) -> None:
    tokens = {Access.to(host, 1).token for _ in range(3)}
    assert len(tokens) == 3
    assert all(token is not None and len(token) >= 40 for token in tokens)


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8642", "localhost:8642", "[::1]:8642", "localhost", "LocalHost:9000"]
)
def test_this_machines_names_are_answered_by_any_tunnels_port(host: str) -> None:
    assert HERE.refusal(headers(host=host)) is None


@pytest.mark.parametrize(
    "host",
    [
        *("", "evil.org", "evil.org:8642", "localhost.evil.org", "127.0.0.1.evil.org:8642"),
        *("192.0.2.1:8642", "[::2]:8642", "[::1", "[evil.org]:1", "localhost:x", "localhost:٣"),
        *("localhost@evil.org", "localhost:1@evil.org", "[::1]evil.org", "127.1", "0x7f000001"),
    ],
)
def test_a_foreign_name_is_refused(host: str) -> None:
    assert HERE.refusal(headers(host=host)) is not None


def test_a_request_with_no_name_or_two_is_refused() -> None:
    assert HERE.refusal(headers()) is not None
    assert HERE.refusal(headers(host="localhost", Host="localhost")) is not None


@pytest.mark.parametrize(
    "origin", ["null", "http://evil.org", "http://localhost:1", "https://localhost:8642", ""]
)
def test_a_foreign_page_is_refused(origin: str) -> None:
    assert HERE.refusal(headers(host="localhost:8642", origin=origin)) is not None


def test_the_servers_own_page_is_answered() -> None:
    own = headers(host="localhost:8642", origin="http://localhost:8642")
    own["Sec-Fetch-Site"] = "same-origin"
    assert HERE.refusal(own) is None


def test_another_site_may_lead_here_and_not_look() -> None:
    leads = headers(host="localhost", sec_fetch_site="cross-site", sec_fetch_mode="navigate")
    looks = headers(host="localhost", sec_fetch_site="cross-site", sec_fetch_mode="no-cors")
    assert HERE.refusal(leads) is None
    assert HERE.refusal(looks) is not None


def test_an_open_server_is_asked_by_address_or_own_name() -> None:
    named = Access("server.example.org", 8642, "the-token")
    assert named.refusal(headers(host="server.example.org:8642")) is None
    assert named.refusal(headers(host="192.0.2.1:8642")) is None
    assert named.refusal(headers(host="evil.org:8642")) is not None
    assert OPEN.refusal(headers(host="[2001:db8::1]:8642")) is None


def test_the_token_is_taken_from_the_address_into_a_cookie() -> None:
    moved = OPEN.moved("/report/a?x=1&token=the-token")
    assert moved is not None
    assert moved["Location"] == "/"
    assert "HttpOnly" in moved["Set-Cookie"]
    assert "SameSite=Strict" in moved["Set-Cookie"]
    assert OPEN.admits(moved["Set-Cookie"].split(";")[0])


@pytest.mark.parametrize("given", ["", "the-toke", "the-token2", "ü", "\udcff"])
def test_another_token_opens_nothing(given: str) -> None:
    assert not OPEN.is_token(given)
    assert OPEN.moved(f"/?token={given}") is None
    assert not OPEN.admits(f"{OPEN.cookie_name}={given}")
    assert not OPEN.admits("")
    assert not OPEN.admits("glocal_1=the-token")  # another server's of this machine


def test_the_address_to_open_has_the_token_in_it() -> None:
    assert Access("192.0.2.1", 8642, "the-token").url == "http://192.0.2.1:8642/?token=the-token"
    assert Access("::1", 8642, None).url == "http://[::1]:8642/"
