"""What went wrong, in one sentence that says what to do.

The command line prints the message of a :class:`GlocalError` and exits with code 2; it never shows
a traceback for one. Everything else that is raised is a defect of ours and exits with code 1.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class GlocalError(ValueError):
    """Input that cannot be used: the message is one sentence with the remedy in it."""


class ClientError(GlocalError):
    """Something failed inside one client: the message names the client and the stage."""


class Interrupted(Exception):  # noqa: N818 - nothing went wrong
    """Somebody asked to stop: the message says how to go on."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def unknown(kind: str, name: str, known: Iterable[str]) -> GlocalError:
    """The error for a name nobody registered, with the nearest known name if one is near."""
    names = sorted(known)
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return GlocalError(f"unknown {kind} {name!r}: {hint}known are {', '.join(names)}.")
