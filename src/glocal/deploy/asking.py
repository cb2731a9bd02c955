"""Requests to nodes: sent to those that are there, again to those that come back, until a deadline.

A node is known by its public key. Its id at the transport may be another after it was away.
"""

from __future__ import annotations

from collections.abc import Mapping

from glocal.deploy.patience import Patience
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
