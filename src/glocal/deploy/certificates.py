"""Keys and certificates: the server's authority, its certificate, a participant's own key.

They are made with ``cryptography``, which comes with Flower. All keys are on the curve P-384.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
from collections.abc import Iterable
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glocal.core.errors import GlocalError, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cryptography.x509 import Certificate

DAYS = 365
"""How long certificates hold, unless asked for otherwise."""

MISSING = "deployments need Flower: pip install 'glocal[flower]'."


@contextmanager
def extra() -> Iterator[None]:
    """Raise the sentence for an extra that is not installed, in place of an ImportError."""
    try:
        yield
    except ImportError as error:
        raise GlocalError(MISSING) from error


def check_extra() -> None:
    """Raise where Flower is not installed."""
    with extra():
        import_module("cryptography")
        import_module("flwr")


def write_private(path: Path, content: bytes) -> None:
    """Write a file that nobody but its owner can ever read; it must not exist yet."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def make_authority(key_file: Path, certificate_file: Path, days: int = DAYS) -> None:
    """Make the certificate that participants trust, and the key that signs the server's."""
    with extra():
        from cryptography import x509
    key = _new_key()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "glocal deployment")])
    usage = _usage(key_cert_sign=True, crl_sign=True)
    builder = _builder(name, name, key.public_key(), days)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = builder.add_extension(usage, critical=True).add_extension(identifier, critical=False)
    write_private(key_file, _pem(key))
    certificate_file.write_bytes(_signed(builder, key))


def make_server_certificate(
    authority_key: Path,
    authority: Path,
    key_file: Path,
    certificate_file: Path,
    hosts: Iterable[str],
    days: int = DAYS,
) -> None:
    """Make the server's key and its certificate for these host names and addresses."""
    with extra():
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
    signer: Any = serialization.load_pem_private_key(authority_key.read_bytes(), None)
    issuer = x509.load_pem_x509_certificate(authority.read_bytes())
    names = [_general_name(host) for host in hosts]
    key = _new_key()
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "glocal server")])
    server = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH])
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = (
        _builder(subject, issuer.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(server, critical=False)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(identifier, critical=False)
    )
    write_private(key_file, _pem(key))
    certificate_file.write_bytes(_signed(builder, signer))


def make_node_key(private_file: Path) -> str:
    """Make a participant's key unless it has one; the public half as one line of text."""
    with extra():
        from cryptography.hazmat.primitives import serialization
    if not private_file.exists():
        key = _new_key()
        form = serialization.PrivateFormat.OpenSSH
        none = serialization.NoEncryption()
        write_private(private_file, key.private_bytes(serialization.Encoding.PEM, form, none))
    private: Any = serialization.load_ssh_private_key(private_file.read_bytes(), None)
    public = private.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return str(public.decode())


def fingerprint(public_key: str | bytes) -> str:
    """What tells a public key from others, whether written by ssh or as Flower gives it."""
    with extra():
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    content = public_key.encode() if isinstance(public_key, str) else public_key
    try:
        pem = content.startswith(b"-----BEGIN")
        load = serialization.load_pem_public_key if pem else serialization.load_ssh_public_key
        key: Any = load(content)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise not_a_key(public_key) from error
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise not_a_key(public_key)
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(key.public_bytes(serialization.Encoding.DER, form)).hexdigest()


def not_a_key(given: str | bytes) -> GlocalError:
    """The error for what is given as a key, or as a file with one, and is none."""
    return GlocalError(
        f"{shown(given)} is no key of a participant: give the line that glocal deploy join prints "
        "(ecdsa-sha2-nistp384 ...), or the file with it."
    )


def check_valid(certificate_file: Path) -> None:
    """Raise where the certificate in a file cannot be read, has expired or does not hold yet."""
    try:
        content = certificate_file.read_bytes()
    except OSError:
        content = b""
    check_content(content, str(certificate_file))


def check_content(content: bytes, which: str) -> None:
    """Raise where a certificate cannot be read, has expired or does not hold yet."""
    with extra():
        from cryptography import x509
    try:
        certificate: Certificate = x509.load_pem_x509_certificate(content)
    except ValueError as error:
        raise GlocalError(
            f"the certificate {which} cannot be read: ask for the kit again."
        ) from error
    end, now = certificate.not_valid_after_utc, datetime.now(UTC)
    if end < now:
        raise GlocalError(
            f"the certificate {which} expired on {end:%Y-%m-%d}: make a new deployment "
            "(glocal deploy init) and send its kit to all participants."
        )
    if certificate.not_valid_before_utc > now:
        raise GlocalError(f"the certificate {which} does not hold yet: check this machine's clock.")


def _new_key() -> Any:
    with extra():
        from cryptography.hazmat.primitives.asymmetric import ec
    return ec.generate_private_key(ec.SECP384R1())


def _pem(key: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization

    form, none = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return bytes(key.private_bytes(serialization.Encoding.PEM, form, none))


def _builder(subject: Any, issuer: Any, public_key: Any, days: int) -> Any:
    from cryptography import x509

    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks differ a little
        .not_valid_after(now + timedelta(days=days))
    )


def _signed(builder: Any, key: Any) -> bytes:
    from cryptography.hazmat.primitives import hashes, serialization

    return bytes(builder.sign(key, hashes.SHA384()).public_bytes(serialization.Encoding.PEM))


def _usage(**granted: bool) -> Any:
    from cryptography import x509

    names = [
        *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
        *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
    ]
    return x509.KeyUsage(**{name: granted.get(name, False) for name in names})


def _general_name(host: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
