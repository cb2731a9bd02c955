"""What Flower starts for every message at a participant: it hands bytes on, and knows nothing.

It has neither torch nor data. The bytes go to the process of :mod:`glocal.deploy.resident` over a
Unix socket, whose path the SuperNode was given (``--node-config``), and the answer goes back. Where
that process is not there, the answer is an error with a fixed text.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from glocal.deploy.frames import NotThereError, ask

if TYPE_CHECKING:
    from flwr.app import Context, Message, RecordDict

PAYLOAD = "payload"
"""The name under which a message has its bytes."""

WAIT = 90.0
"""Seconds that the node may take to be started again."""

NOT_THERE = "the node's process is not running"


def packed(content: bytes) -> RecordDict:
    """Bytes as Flower carries them: one array, which it cuts into pieces if it is long."""
    from flwr.app import Array, ArrayRecord, RecordDict

    array = Array(dtype="uint8", shape=(len(content),), stype="bytes", data=content)
    return RecordDict({PAYLOAD: ArrayRecord({PAYLOAD: array})})


def unpacked(content: RecordDict) -> bytes:
    """The bytes of a message; raise ValueError where it has none."""
    from flwr.app import ArrayRecord

    record = content.get(PAYLOAD)
    if not isinstance(record, ArrayRecord) or PAYLOAD not in record:
        raise ValueError("the message has no bytes in it")
    return bytes(record[PAYLOAD].data)


def handle(message: Message, context: Context) -> Message:
    """Answer a message of the server by what the resident node says."""
    from flwr.app import Error, Message

    try:
        answer = ask(Path(str(context.node_config["socket"])), unpacked(message.content), WAIT)
    except (NotThereError, ValueError, KeyError):
        return Message(Error(code=0, reason=NOT_THERE), reply_to=message)
    return Message(packed(answer), reply_to=message)
