"""Tiny files in the formats of the real texts, and the descriptions that fit them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

from glocal.data.datasets.text_dataset import TextSet

HAMLET = """HAMLET, PRINCE OF DENMARK

PERSONS REPRESENTED.

Claudius, King of Denmark.

ACT I.
Scene I. Elsinore.

[Francisco at his post. Enter to him Bernardo.]

Ber.
Who's there?

Fran.
Nay, answer me: [Rising.] stand, and
unfold yourself.

A paragraph of nobody
that goes on.

BER.
Long live the king!
[Exit.]

SCENE II.
Another place.
"""

PLAYS = {
    "hamlet_gut.txt": HAMLET.encode("latin-1"),
    "macbeth_gut.txt": "ACT I.\r\n\r\nMacb.\r\nSo foul and fair a day, naïve.\r\n".encode(
        "latin-1"
    ),
}


def speech(year: int, name: str, text: str) -> bytes:
    return json.dumps({"year": year, "name": name, "party": "none", "text": text}).encode()


SPEECHES = {
    "1791_george_washington_n.json": speech(1791, "George Washington", "Second speech, of 1791."),
    "1790_george_washington_n.json": speech(1790, "George Washington", "First speech; don’t stop!"),
    "1797_john_adams_f.json": speech(1797, "John Adams", "Fellow citizens of the house."),
}


def toy(data: TextSet, files: dict[str, bytes]) -> TextSet:
    """The data set as if these were its files."""
    found = data.read(files)
    right = hashlib.sha256(found.to_bytes()).hexdigest()
    return replace(data, counts=(len(files), len(found.clients)), sha256=right)
