"""Errors whose message is one sentence that says what to do.

The command line prints the message of a :class:`GlocalError` and exits with code 2, without a
traceback. Every other exception is a defect of this package and exits with code 1.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LONGEST = 80
"""The number of characters of a user's value that a message repeats."""


class GlocalError(ValueError):
    """Input is invalid; the message is one sentence with the remedy in it."""

    def __init__(self, message: str) -> None:
        # A name in a user's file may contain a line break; the message stays on one line.
        super().__init__(" ".join(message.split()))


class ClientError(GlocalError):
    """Training failed at one client; the message names the client and the stage."""

    method: str | None = None
    """The method that was trained, where that is known."""


class NoRoomError(GlocalError):
    """A file could not be written; once there is space, the run can be resumed."""


class Interrupted(Exception):  # noqa: N818 - nothing went wrong
    """The user stopped the run; the message says how to resume it."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def unknown(kind: str, name: object, known: Iterable[str]) -> GlocalError:
    """The error for a name that is not registered, with the most similar known name."""
    names = sorted(known)
    # The comparison takes time that grows with the length, and no name is similar to a long one.
    near = difflib.get_close_matches(str(name).lower()[:LONGEST], names, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return GlocalError(f"unknown {kind} {shown(name)}: {hint}known are {', '.join(names)}.")


def shown(value: object) -> str:
    """A value as a message repeats it, shortened."""
    try:
        text = repr(value)
    except ValueError:  # Python does not write integers of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
