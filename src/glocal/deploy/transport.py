"""What carries messages between a server and its nodes: bytes there, bytes back.

A transport knows nothing of what it carries. It may lose, delay or repeat messages: whoever sends
asks again, and a node that answers the same request twice gives the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol


class Transport(Protocol):
    """The server's side; ids are the transport's own, and keep for one connection of a node."""

    def online(self) -> dict[str, bytes]:
        """The ids of the nodes that can be reached now, and the public key of each."""

    def push(self, messages: Mapping[str, bytes]) -> dict[str, str]:
        """Send each node its message; the ids of those that were accepted, by node."""

    def pull(self, message_ids: Collection[str], wait: float) -> dict[str, bytes]:
        """The answers to these messages that came within ``wait`` seconds: all, some or none.

        It returns early where all are there. An answer is handed out once.
        """


@dataclass
class InProcess:
    """Nodes in this process, each a function from bytes to bytes; for tests and for a first look.

    A node answers when its answer is pulled, so that nothing waits.
    """

    nodes: dict[str, Callable[[bytes], bytes]]
    keys: dict[str, bytes] = field(default_factory=dict)
    """The public keys; by default a node's is its id."""
    waiting: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    """Messages that were not answered yet: the node, and its request."""
    _numbers: count[int] = field(default_factory=count)

    def online(self) -> dict[str, bytes]:
        """All of them."""
        return {node: self.keys.get(node, node.encode()) for node in self.nodes}

    def push(self, messages: Mapping[str, bytes]) -> dict[str, str]:
        """Kept until the answer is asked for."""
        sent = {node: str(next(self._numbers)) for node in messages}
        self.waiting |= {sent[node]: (node, request) for node, request in messages.items()}
        return sent

    def pull(self, message_ids: Collection[str], wait: float) -> dict[str, bytes]:
        """The nodes answer now."""
        asked = {i: self.waiting.pop(i) for i in message_ids if i in self.waiting}
        return {i: self.nodes[node](request) for i, (node, request) in asked.items()}
