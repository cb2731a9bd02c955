"""Requests to nodes: sent to those that are there, again to those that come back, until a deadline.

A node is known by its public key. Its id at the transport may be another after it was away.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glocal.core.types import Tree
from glocal.deploy import wire
from glocal.deploy.patience import Patience
from glocal.deploy.replies import FAILURES, REFUSALS, UNREADABLE
from glocal.deploy.transport import Transport


def ask(
    transport: Transport, requests: Mapping[bytes, bytes], patience: Patience, seconds: float
) -> dict[bytes, bytes]:
    """The answers, by public key, of the nodes that gave one in time.

    A request is sent again to a node that was away since, or did not answer for a while: nodes
    answer the same request the same way, and the first answer is taken.
    """
    answers: dict[bytes, bytes] = {}
    sent: dict[str, bytes] = {}
    asked: dict[bytes, tuple[str, float]] = {}
    end = patience.clock() + seconds
    while requests.keys() - answers.keys() and patience.clock() < end:
        now = patience.clock()
        online = {key: node for node, key in transport.online().items()}
        for key, (node, when) in list(asked.items()):
            if online.get(key) != node or now - when >= patience.again:
                del asked[key]  # it is asked again once it is there
        due = {
            online[key]: request
            for key, request in requests.items()
            if key in online and key not in asked and key not in answers
        }
        by_node = {node: key for key, node in online.items()}
        for node, message in transport.push(due).items() if due else ():
            sent[message] = by_node[node]
            asked[by_node[node]] = node, now
        wait = min(patience.poll, max(0.0, end - now))
        for message, content in transport.pull(list(sent), wait).items():
            answers.setdefault(sent.pop(message), content)
    return {key: answers[key] for key in requests if key in answers}


def clients_of(keys: Mapping[str, bytes], key: bytes) -> list[str]:
    """The clients of the node with this public key."""
    return [name for name, bound in keys.items() if bound == key]


def ask_clients(
    transport: Transport,
    keys: Mapping[str, bytes],
    patience: Patience,
    seconds: float,
    kind: wire.Request,
    wants: Mapping[str, dict[str, Any]],
    facts: Mapping[str, Any],
    trees: Tree | None = None,
) -> dict[bytes, wire.Message | str]:
    """What the nodes of these clients answer, by their keys; or why that is no answer.

    ``keys`` has those of all clients, whose order numbers them, and ``wants`` what is said of each
    that is asked.
    """
    names, requests = list(keys), {}
    for key in dict.fromkeys(keys[name] for name in wants):
        numbers = {name: names.index(name) for name in clients_of(keys, key)}
        clients = {name: wants[name] for name in numbers if name in wants}
        about = {"numbers": numbers, "clients": clients, **facts}
        requests[key] = wire.encode(wire.Message(kind, about, trees or {}))
    answers = ask(transport, requests, patience, seconds)
    return {key: _read(content, kind) for key, content in answers.items()}


_ANSWERS = {"count": "counted", "join": "joined", "train": "trained"}


def _read(content: bytes, kind: str) -> wire.Message | str:
    """A node's answer to a request of this kind; or why it is none."""
    try:
        message = wire.decode(content)
    except wire.WireError:
        return UNREADABLE
    if message.kind == "refused":
        code = message.facts.get("code")
        return code if isinstance(code, str) and code in (*FAILURES, *REFUSALS) else UNREADABLE
    return message if message.kind == _ANSWERS.get(kind, f"{kind}d") else UNREADABLE
