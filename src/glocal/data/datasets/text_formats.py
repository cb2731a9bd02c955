"""Formats of text data sets, read from bytes: plays with speakers, and speeches in JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from glocal.core.errors import GlocalError
from glocal.data.text.passages import Passages

_SPEAKER = re.compile(r"[A-Z][A-Za-z' ]{0,30}\.")
_HEADING = re.compile(r"(?:act|scene|persons|dramatis|the argument)\b", re.IGNORECASE)
_DIRECTION = re.compile(r"\[[^\]]*\]")
_BLANK = re.compile(r"\n[ \t]*\n")

PLAY_ENDS = "_gut.txt"
"""How the names of files of plays end."""


def speeches_of_plays(files: Mapping[str, bytes]) -> Passages:
    """The speeches of every role of every play, in order; a role is called ``play: ROLE``.

    A speech is a paragraph whose first line is the speaker, as ``Ham.``; stage directions in square
    brackets are left out, and so are paragraphs without a speaker.
    """

    def spoken() -> Iterator[tuple[str, str]]:
        for name in sorted(files):
            text = files[name].decode("latin-1").replace("\r\n", "\n")
            for paragraph in _BLANK.split(text):
                first, _, rest = paragraph.strip().partition("\n")
                speaker = first.strip()
                if not _SPEAKER.fullmatch(speaker) or _HEADING.match(speaker):
                    continue
                lines = (line.strip() for line in _DIRECTION.sub("", rest).splitlines())
                speech = "\n".join(line for line in lines if line)
                if speech:
                    yield f"{name.removesuffix(PLAY_ENDS)}: {speaker[:-1].upper()}", speech

    return Passages.of(spoken())


def speeches_in_json(files: Mapping[str, bytes]) -> Passages:
    """Speeches by speaker and year, from one file each with ``name``, ``year`` and ``text``."""
    found = []
    for name in sorted(files):
        try:
            speech = json.loads(files[name])
            found.append((int(speech["year"]), name, str(speech["name"]), str(speech["text"])))
        except (ValueError, TypeError, KeyError):
            raise GlocalError(f"{name} is no speech in JSON: fetch it again.") from None
    return Passages.of((speaker, text) for _, _, speaker, text in sorted(found))
