"""Messages as bytes: what is said is what is heard, and nothing else is."""

from __future__ import annotations

import json
import pickle
import struct
from typing import Any

import pytest
import torch

from glocal.core import tree, tree_bytes
from glocal.deploy import wire

MESSAGE = wire.Message(
    "train",
    {"round": 3, "clients": {"ä/b": [1, None]}},
    {
        "down": {"b": torch.arange(3.0), "a": torch.tensor(2), "empty": {}},
        "none": torch.zeros(0, 2),
        "types": {str(dtype): torch.ones(2, dtype=dtype) for dtype in tree_bytes.DTYPES},
    },
)


def test_what_is_sent_is_what_is_received() -> None:
    found = wire.decode(wire.encode(MESSAGE))
    assert (found.kind, found.facts) == (MESSAGE.kind, MESSAGE.facts)
    assert tree.structure(found.trees) == tree.structure(MESSAGE.trees)
    assert list(found.trees["down"]) == ["b", "a", "empty"]
    for name, leaf in tree.flatten(MESSAGE.trees):
        assert torch.equal(dict(tree.flatten(found.trees))[name], leaf)


def changed(**about: Any) -> bytes:
    """A message whose own facts are changed."""
    facts = {"wire": wire.VERSION, "kind": "train", "facts": {}, **about}
    return b"".join(tree_bytes.parts(facts, {}))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (changed(wire=wire.VERSION + 1), "same version of glocal on both sides"),
        (changed(kind="run this"), "is not known"),
        (changed(facts=[1]), "is not known"),
        (b"", "cannot be read"),
        (b"\xff" * 100, "cannot be read"),
        (pickle.dumps({"a": 1}), "cannot be read"),
        (wire.encode(MESSAGE)[:-1], "cannot be read"),
        (wire.encode(MESSAGE) + b"x", "cannot be read"),
        (struct.pack("<Q", 2) + b"{}", "cannot be read"),
        (struct.pack("<Q", 1 << 62) + b"{}", "cannot be read"),
    ],
)
def test_what_is_no_message_is_refused(content: bytes, why: str) -> None:
    with pytest.raises(wire.WireError, match=why):
        wire.decode(content)


def test_what_is_too_long_or_too_deep_is_refused() -> None:
    with pytest.raises(wire.WireError, match="longer than the 10 allowed"):
        wire.decode(wire.encode(MESSAGE), most=10)
    deep: Any = torch.zeros(1)
    for _ in range(wire.DEEPEST + 1):
        deep = {"a": deep}
    with pytest.raises(wire.WireError, match="cannot be read"):
        wire.decode(wire.encode(wire.Message("train", {}, deep)))


def test_a_tensor_that_is_named_but_not_there_is_refused() -> None:
    shape = {"facts": json.dumps({"wire": 1}), "trees": json.dumps({"a": "gone"})}
    content = tree_bytes.header({}, {"__metadata__": shape})[0]
    with pytest.raises(wire.WireError, match="cannot be read"):
        wire.decode(content)
