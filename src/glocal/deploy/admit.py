"""``glocal deploy admit`` and ``remove``: whose key speaks for which client."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from glocal.core.errors import GlocalError, shown, unknown
from glocal.deploy.certificates import fingerprint, not_a_key
from glocal.deploy.server_folder import Member, ServerFolder, check_name


def admit(folder: ServerFolder, name: str, key: str) -> None:
    """Add a client to the roster; ``key`` is the public key of its node, or a file with it.

    A node may have several clients. A client's name has one key, and once the rounds have begun
    nobody is admitted, since who is in it decides what is drawn; but for one who was removed and
    comes back with another key.
    """
    check_name(name)
    key = key_of(key)
    given, roster = fingerprint(key), folder.roster()
    if name in roster and fingerprint(roster[name]) == given:
        return
    if name in roster:
        raise GlocalError(
            f"the name {shown(name)} is taken by another key: admit this one under another name, "
            "or take the other out first (glocal deploy remove)."
        )
    members = folder.members()
    others = [each for each in members if each.client != name]
    if folder.begun and len(others) == len(members):
        raise GlocalError(
            f"the rounds have begun without {shown(name)}: it can join the next deployment."
        )
    in_use = [fingerprint(each) for each in roster.values()]
    if given not in in_use and any(fingerprint(each.key) == given for each in members):
        raise GlocalError(
            "this key was removed, and is not let in again: ask the participant to join with "
            "another --folder, which makes another key."
        )
    new = Member(name, key)
    if folder.begun:  # it keeps its place, which is its number
        folder.write_members([new if each.client == name else each for each in members])
    else:
        folder.write_members([*others, new])


def remove(folder: ServerFolder, name: str) -> None:
    """Take a client out: it is not asked any more, and its key no longer speaks for it."""
    members, roster = folder.members(), folder.roster()
    if name not in roster:
        raise unknown("client", name, roster)
    if folder.begun and len(roster) <= 2:
        raise GlocalError(
            "a federation needs two clients or more: begin another deployment instead of going on "
            f"without {shown(name)}."
        )
    folder.write_members(
        [replace(each, removed=True) if each.client == name else each for each in members]
    )


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
