"""Messages over Flower's Grid, as a ServerApp has it.

A node's id here has in it when the node last connected, and how many of its messages came to
nothing since: one that went away and came back, or whose process died over a message, has another,
and is asked again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from glocal.deploy import audit
from glocal.deploy.certificates import fingerprint
from glocal.deploy.shim import packed, unpacked

if TYPE_CHECKING:
    from flwr.app import Message

PAUSE = 0.3
"""Seconds between two looks for answers."""


class NodeInfo(Protocol):
    """What Flower knows of a node."""

    node_id: int
    public_key: bytes
    last_activated_at: str


class Grid(Protocol):
    """What is used of Flower's Grid."""

    def get_nodes(self) -> Iterable[NodeInfo]:
        """Those that are connected."""

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str | None]:
        """The ids of messages, in their order; none for one that was not accepted."""

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The answers that are there."""


@dataclass(frozen=True)
class FlowerTransport:
    """The transport of a real deployment."""

    grid: Grid
    audit_file: Path
    """What is sent to whom is recorded there."""
    lives: float = 86_400.0
    """Seconds after which Flower forgets a message that nobody fetched."""
    _asked: dict[str, int] = field(default_factory=dict)
    """The node of each message that was not answered yet."""
    _failures: Counter[int] = field(default_factory=Counter)
    """How many messages to each node came to nothing."""

    def online(self) -> dict[str, bytes]:
        """The nodes that are connected, and the fingerprint of the key of each."""
        return {
            f"{node.node_id} {node.last_activated_at} {self._failures[node.node_id]}": fingerprint(
                node.public_key
            ).encode()
            for node in self.grid.get_nodes()
        }

    def push(self, messages: Mapping[str, bytes]) -> dict[str, str]:
        """Send each node its message; the ids of those that were accepted, by node."""
        from flwr.app import Message

        sent: dict[str, str] = {}
        for node, content in messages.items():  # one at a time: together they may be too large
            to = int(node.partition(" ")[0])
            audit.record(self.audit_file, content, to=str(to))
            message = Message(packed(content), to, "query", ttl=self.lives)
            (given,) = self.grid.push_messages([message])
            if given:
                sent[node] = given
                self._asked[given] = to
        return sent

    def pull(self, message_ids: Collection[str], wait: float) -> dict[str, bytes]:
        """The answers to these messages that came in time.

        An error of Flower in place of an answer is none: it counts as a failure of the node.
        """
        until, left = time.monotonic() + wait, set(message_ids)
        answers: dict[str, bytes] = {}
        while left:
            for message in self.grid.pull_messages(sorted(left)):
                answered = message.metadata.reply_to_message_id
                left.discard(answered)
                node = self._asked.pop(answered, None)
                if node is None:
                    continue
                try:
                    if not message.has_content():
                        raise ValueError("an error")
                    answers[answered] = unpacked(message.content)
                except ValueError:
                    self._failures[node] += 1
            if not left or time.monotonic() >= until:
                break
            time.sleep(min(PAUSE, max(0.0, until - time.monotonic())))
        return answers
