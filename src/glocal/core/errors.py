"""What went wrong, in one sentence that says what to do.

The command line prints the message of a :class:`GlocalError` and exits with code 2; it never shows
a traceback for one. Everything else that is raised is a defect of ours and exits with code 1.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LONGEST = 80
"""Characters of a user's text that a sentence repeats."""


class GlocalError(ValueError):
    """Input that cannot be used: the message is one sentence with the remedy in it."""

    def __init__(self, message: str) -> None:
        # A name in somebody's file may hold the end of a line; the sentence stays on one.
        super().__init__(" ".join(message.split()))


class ClientError(GlocalError):
    """Something failed inside one client: the message names the client and the stage."""


class NoRoomError(GlocalError):
    """Something could not be written: once there is room, a run can go on."""


class Interrupted(Exception):  # noqa: N818 - nothing went wrong
    """Somebody asked to stop: the message says how to go on."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def unknown(kind: str, name: object, known: Iterable[str]) -> GlocalError:
    """The error for a name nobody registered, with the nearest known name if one is near."""
    names = sorted(known)
    # Comparing takes time that grows with the length, and nothing is near a very long name.
    near = difflib.get_close_matches(str(name).lower()[:LONGEST], names, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return GlocalError(f"unknown {kind} {shown(name)}: {hint}known are {', '.join(names)}.")


def shown(value: object) -> str:
    """A value as a sentence repeats it: not too much of it."""
    try:
        text = repr(value)
    except ValueError:  # Python does not write integers of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
