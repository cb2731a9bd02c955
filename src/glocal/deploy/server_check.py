"""Whether a server is the one of a kit, before anything else is tried."""

from __future__ import annotations

import re
import socket
import ssl
from pathlib import Path

from glocal.core.errors import GlocalError, shown

EXPIRED = 10
"""OpenSSL's number for a certificate that has expired."""


def split_address(address: str) -> tuple[str, int]:
    """Host and port."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    right_port = re.fullmatch("[0-9]{1,5}", port) is not None and 0 < int(port) < 65536
    if not right_port or not _can_be_looked_up(host):
        raise GlocalError(
            f"{shown(address)} is no address of a server: write it like server.org:8443."
        )
    return host, int(port)


def _can_be_looked_up(host: str) -> bool:
    """Whether this may be the name of a machine, or its address."""
    try:
        host.encode("idna")  # as sockets do
    except UnicodeError:
        return False
    return bool(host) and host.isprintable() and " " not in host


def is_there(address: str, authority: Path, limit: float = 5.0) -> bool:
    """Whether the server answers; raise where what answers is not the server of the kit."""
    host, port = split_address(address)
    context = ssl.create_default_context(cafile=str(authority))
    try:
        with (
            socket.create_connection((host, port), limit) as connection,
            context.wrap_socket(connection, server_hostname=host),
        ):
            return True
    except ssl.SSLCertVerificationError as error:
        if error.verify_code == EXPIRED:
            raise GlocalError(
                f"the certificate of the server at {address} has expired: its operator has to make "
                "a new deployment, and send its kit."
            ) from error
        raise GlocalError(
            f"what answers at {address} is not the server of this kit ({error.verify_message}): "
            "check the address, and ask its operator for the kit again."
        ) from error
    except OSError:
        return False


def check_port(host: str, port: int) -> None:
    """Raise where something else listens at a port of this machine already."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise GlocalError(
                f"port {port} of {host} cannot be used ({error.strerror}): end what uses it, or "
                "make the deployment with another --port."
            ) from error
