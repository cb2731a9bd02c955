"""Keys, certificates, and whose key speaks for which client."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="make test-deploy installs it")
from glocal.core.errors import GlocalError
from glocal.deploy import certificates
from glocal.deploy.admit import admit
from glocal.deploy.server_check import is_there, split_address
from glocal.deploy.server_folder import ServerFolder

pytestmark = pytest.mark.deploy


def test_a_key_has_one_fingerprint_however_it_is_written(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    line = certificates.make_node_key(tmp_path / "key")
    assert certificates.make_node_key(tmp_path / "key") == line  # the second time it is there
    key = serialization.load_ssh_public_key(line.encode())
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    pem = key.public_bytes(serialization.Encoding.PEM, form)
    assert certificates.fingerprint(line) == certificates.fingerprint(pem)
    other = certificates.make_node_key(tmp_path / "other")
    assert certificates.fingerprint(other) != certificates.fingerprint(line)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["", "nonsense", "ssh-ed25519 AAAA", "ecdsa-sha2-nistp384 AAAA"])
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(GlocalError, match="is no key of a participant"):
        certificates.fingerprint(text)


def test_an_expired_certificate_is_refused(tmp_path: Path) -> None:
    certificates.make_authority(tmp_path / "key", tmp_path / "ca.crt", days=0)
    with pytest.raises(GlocalError, match="expired on"):
        certificates.check_valid(tmp_path / "ca.crt")
    (tmp_path / "ca.crt").write_text("torn")
    with pytest.raises(GlocalError, match="cannot be read"):
        certificates.check_valid(tmp_path / "ca.crt")


def test_the_servers_certificate_is_signed_for_its_host(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("ca.key", "ca.crt", "s.key", "s.crt")]
    certificates.make_authority(files[0], files[1])
    certificates.make_server_certificate(*files, ["127.0.0.1", "server.org"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files[3], files[2])  # key and certificate belong together
    assert not is_there("127.0.0.1:1", files[1])
    with pytest.raises(GlocalError, match="no address of a server"):
        split_address("server.org")


def test_a_name_has_one_key(tmp_path: Path) -> None:
    folder = ServerFolder(tmp_path)
    first, second = (certificates.make_node_key(tmp_path / name) for name in "ab")
    admit(folder, "clinic", first)
    admit(folder, "clinic", first)
    admit(folder, "its other ward", first)
    (tmp_path / "b.pub").write_text(f"{second} somebody@somewhere\n")
    with pytest.raises(GlocalError, match="the name 'clinic' is taken by another key"):
        admit(folder, "clinic", second)
    admit(folder, "Görlitz", str(tmp_path / "b.pub"))
    assert list(folder.roster()) == ["clinic", "its other ward", "Görlitz"]
    keys = folder.admitted()
    assert keys["clinic"] == keys["its other ward"] != keys["Görlitz"]
    with pytest.raises(GlocalError, match="cannot be a client's name"):
        admit(folder, "a/b", second)
    folder.joined_file.parent.mkdir(parents=True)
    folder.joined_file.write_text("{}")
    with pytest.raises(GlocalError, match="the rounds have begun without 'late'"):
        admit(folder, "late", second)


def test_what_a_file_holds_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes").write_text("password hunter2")
    with pytest.raises(GlocalError, match="'notes' is no key of a participant") as refused:
        admit(ServerFolder(tmp_path), "clinic", "notes")
    assert "hunter2" not in str(refused.value)
    with pytest.raises(GlocalError, match="is no key of a participant"):
        admit(ServerFolder(tmp_path), "clinic", "a" * 5000)
