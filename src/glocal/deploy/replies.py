"""What a participant's process answers where it does not do as asked: a code, and no text.

The text of an exception may have data in it, so it stays on this side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from glocal.core.errors import NoRoomError
from glocal.deploy import wire

FAILED, DIVERGED, LOST, NO_ROOM, REPEATED = "failed", "diverged", "lost", "no room", "repeated"
FAILURES = (FAILED, DIVERGED, LOST, NO_ROOM, REPEATED)
"""Why a client's round has no answer: all that is said of it."""

UNREADABLE, OTHER_PLAN, STRANGER = "unreadable", "another plan", "another's client"
OTHER_ROUND = "a round that the plan does not have"
OTHER_LABEL, COUNTED = "a label that the schema does not have", "counted already, for others"
REFUSALS = (UNREADABLE, OTHER_PLAN, OTHER_ROUND, STRANGER, OTHER_LABEL, COUNTED)
"""Why a request is refused."""


class RefusalError(Exception):
    """A request is not answered; the text is one of the codes."""


def reply(
    request: bytes,
    plan: str,
    by_kind: Mapping[str, Callable[[wire.Message], wire.Message]],
    note: Callable[[str], None],
) -> wire.Message:
    """What the function of a request's kind answers; a code where that fails, or for another plan.

    ``plan`` is the digest of the one that was approved, and ``note`` is told what went wrong.
    """
    try:
        message = wire.decode(request)
        if message.facts.get("plan") != plan:
            raise RefusalError(OTHER_PLAN)
        if message.kind not in by_kind:
            raise RefusalError(UNREADABLE)
        return by_kind[message.kind](message)
    except RefusalError as error:
        return wire.Message("refused", {"code": str(error)})
    except wire.WireError as error:
        note(str(error))
        return wire.Message("refused", {"code": UNREADABLE})
    except Exception as error:  # whatever a method or a model raises
        note(f"{type(error).__name__}: {error}")
        code = NO_ROOM if isinstance(error, NoRoomError) else FAILED
        return wire.Message("refused", {"code": code})
