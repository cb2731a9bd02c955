"""Messages as bytes: a kind, facts and trees of tensors, in the safe format of checkpoints.

Nothing in a message is ever executed, and one of another version, an unknown kind, or more than a
message may have, is refused. What a kind's facts and trees hold is said where it is made: requests
in :mod:`glocal.deploy.remote`, answers in :mod:`glocal.deploy.node`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from glocal.core import tree_bytes
from glocal.core.errors import GlocalError, shown
from glocal.core.types import Tree

VERSION = 1
"""Of the messages; both sides must have the same."""

Request = Literal["count", "join", "train", "validate", "evaluate"]
Answer = Literal["counted", "joined", "trained", "validated", "evaluated", "refused"]

KINDS: tuple[str, ...] = (*get_args(Request), *get_args(Answer))

MOST_BYTES = 1 << 31
"""Of a message."""

MOST_HEADER = 1 << 24
"""Bytes of the part of a message that is text."""

DEEPEST = 32
"""Levels of a tree."""


class WireError(GlocalError):
    """A message cannot be read."""


@dataclass(frozen=True)
class Message:
    """What one side says to the other."""

    kind: str
    facts: dict[str, Any] = field(default_factory=dict)
    trees: Tree = field(default_factory=dict)


def encode(message: Message) -> bytes:
    """A message as bytes."""
    about = {"wire": VERSION, "kind": message.kind, "facts": message.facts}
    return b"".join(tree_bytes.parts(about, message.trees))


def decode(content: bytes, most: int = MOST_BYTES) -> Message:
    """The message in these bytes, wherever they come from."""
    if len(content) > most:
        raise WireError(f"a message of {len(content)} bytes is longer than the {most} allowed.")
    try:
        facts, trees = _read(content)
        version, kind, inside = facts["wire"], facts["kind"], facts["facts"]
    except Exception as error:  # foreign bytes, whatever they hold: safetensors has its own kinds
        raise WireError(f"a message cannot be read ({type(error).__name__}).") from error
    if version != VERSION:
        raise WireError(
            f"a message of wire version {shown(version)} cannot be read, and this one is "
            f"{VERSION}: install the same version of glocal on both sides."
        )
    if kind not in KINDS or not isinstance(inside, dict):
        raise WireError(f"a message of the kind {shown(kind)} is not known.")
    return Message(kind, inside, trees)


def _read(content: bytes) -> tuple[Any, Tree]:
    from safetensors.torch import load

    (length,) = struct.unpack_from("<Q", content)
    if length > min(MOST_HEADER, len(content) - 8):
        raise ValueError("header")
    metadata: Mapping[str, str] = json.loads(content[8 : 8 + length])["__metadata__"]
    _check_depth(json.loads(metadata["trees"]), DEEPEST)
    return tree_bytes.content(metadata, load(content))


def _check_depth(shape: Any, left: int) -> None:
    if isinstance(shape, dict):
        if left == 0:
            raise ValueError("depth")
        for inside in shape.values():
            _check_depth(inside, left - 1)
