"""``glocal deploy admit``: whose key speaks for which client."""

from __future__ import annotations

from pathlib import Path

from glocal.core.errors import GlocalError, shown
from glocal.deploy.certificates import fingerprint
from glocal.deploy.server_folder import ServerFolder, check_name


def admit(folder: ServerFolder, name: str, key: str) -> None:
    """Add a client to the roster; ``key`` is the public key of its node, or a file with it.

    A node may have several clients. A client's name has one key, and after the first round nobody
    is admitted: who is in it decides what is drawn.
    """
    check_name(name)
    if not key.startswith("ecdsa-") and Path(key).is_file():
        key = Path(key).read_text(encoding="utf-8", errors="replace")
    key = " ".join(key.split()[:2])
    given, roster = fingerprint(key), folder.roster()
    if name in roster and fingerprint(roster[name]) == given:
        return
    if name in roster:
        raise GlocalError(
            f"the name {shown(name)} is taken by another key: admit this one under another name."
        )
    if folder.joined_file.exists():
        raise GlocalError(
            f"the rounds have begun without {shown(name)}: it can join the next deployment."
        )
    folder.write_roster({**roster, name: key})
