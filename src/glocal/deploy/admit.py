"""``glocal deploy admit``: whose key speaks for which client."""

from __future__ import annotations

from pathlib import Path

from glocal.core.errors import GlocalError, shown
from glocal.deploy.certificates import fingerprint, not_a_key
from glocal.deploy.server_folder import ServerFolder, check_name


def admit(folder: ServerFolder, name: str, key: str) -> None:
    """Add a client to the roster; ``key`` is the public key of its node, or a file with it.

    A node may have several clients. A client's name has one key, and after the first round nobody
    is admitted: who is in it decides what is drawn.
    """
    check_name(name)
    key = key_of(key)
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


def key_of(given: str) -> str:
    """A public key, or the one in a file; what a file holds that is none is not repeated."""
    key = _first_two_words(given)
    if given.startswith("ecdsa-"):
        return key
    try:
        if not Path(given).is_file():
            return key
        key = _first_two_words(Path(given).read_text(encoding="utf-8", errors="replace"))
        fingerprint(key)
    except (OSError, ValueError):  # it may also be too long for the name of a file
        raise not_a_key(given) from None
    return key


def _first_two_words(text: str) -> str:
    """The kind of a key and the key, without the comment after them."""
    return " ".join(text.split()[:2])
