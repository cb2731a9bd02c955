"""A server that asks for more than was approved, or sends what is made to harm its nodes."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from deploy.federations import Deployment
from glocal.core.errors import GlocalError
from glocal.deploy import own_files, wire
from glocal.slots.privacy import norm

CENTRAL = "fedavg(lr=1.0)+dp(clip=0.01,noise=0.5)"
LOCAL = "fedavg+dp(clip=0.1,noise=0.5,where=local)"


def requests_of(deployed: Deployment) -> list[tuple[str, wire.Message]]:
    """What the server asks the nodes to train, while all rounds are run."""
    asked: list[tuple[str, wire.Message]] = []

    def between(node: str, request: bytes, answer: bytes) -> bytes:
        message = wire.decode(request)
        if message.kind == "train":
            asked.append((node, message))
        return answer

    deployed.network.between = between
    deployed.serve()
    return asked


def answered(deployed: Deployment, node: str, message: wire.Message) -> wire.Message:
    return wire.decode(deployed.nodes[node].answer(wire.encode(message)))


@pytest.mark.parametrize(
    "spec", ["fedavg", LOCAL, pytest.param("fedavg+dp-sgd(noise=1)", marks=pytest.mark.deploy)]
)
@pytest.mark.parametrize("number", [-1, 1, 1000])
def test_rounds_that_the_plan_does_not_have_are_not_trained(
    spec: str, number: int, tmp_path: Path
) -> None:
    """With noise of the clients' own, what they spend is by the rounds that they approved."""
    deployed = Deployment.of(spec, tmp_path, rounds=1)
    node, message = requests_of(deployed)[0]
    message.facts["round"] = number
    refusal = answered(deployed, node, message)
    assert (refusal.kind, refusal.facts) == (
        "refused",
        {"code": "a round that the plan does not have"},
    )


def test_a_clients_number_stays_once_it_has_trained(tmp_path: Path) -> None:
    """Rows are split by it: with another one, test examples would be trained on."""
    deployed = Deployment.of("fedavg", tmp_path, rounds=2)
    node, message = requests_of(deployed)[0]
    message.facts["numbers"] = {name: n + 1 for name, n in message.facts["numbers"].items()}
    refusal = answered(deployed, node, message)
    assert (refusal.kind, refusal.facts) == ("refused", {"code": "another's client"})


def test_a_budget_that_was_approved_ends_at_the_node(tmp_path: Path) -> None:
    spec = "fedavg+dp(clip=0.1,noise=2,where=local,epsilon=6)"
    deployed = Deployment.of(spec, tmp_path, rounds=9)
    asked = requests_of(deployed)
    last = max(message.facts["round"] for _, message in asked)
    assert last < 8
    node, message = next(each for each in asked if each[1].facts["round"] == last)
    message.facts["round"] = last + 1
    assert answered(deployed, node, message).kind == "refused"


def test_updates_are_clipped_by_the_plans_clip_whatever_the_server_sends(tmp_path: Path) -> None:
    deployed = Deployment.of(CENTRAL, tmp_path, rounds=1)
    node, message = requests_of(deployed)[0]
    message.trees["privacy"]["clip"] = torch.tensor(1e6)
    answer = answered(deployed, node, message)
    lengths = [float(norm(sent["update"])) for sent in answer.trees.values()]
    assert len(lengths) > 0
    assert max(lengths) <= 0.01


def nested(levels: int) -> bytes:
    """Facts as deep as this, in a message that is right otherwise."""
    deep = "[" * levels + "]" * levels
    facts = f'{{"wire":{wire.VERSION},"kind":"train","facts":{{"x":{deep}}}}}'
    head = json.dumps({"__metadata__": {"facts": facts, "trees": "{}"}}).encode()
    return struct.pack("<Q", len(head)) + head


def claiming(length: int) -> bytes:
    return struct.pack("<Q", length) + b"{}"


def with_tensor(shape: list[int], offsets: list[int]) -> bytes:
    """A tensor that is said to be larger than the message."""
    about = {"facts": json.dumps({"wire": 1, "kind": "train", "facts": {}}), "trees": '{"a":"a"}'}
    tensor = {"dtype": "F32", "shape": shape, "data_offsets": offsets}
    head = json.dumps({"__metadata__": about, "a": tensor}).encode()
    return struct.pack("<Q", len(head)) + head + b"\0" * 8


BOMBS: dict[str, Callable[[], bytes]] = {
    "a header of 2⁶³ bytes": lambda: claiming(1 << 63),
    "a header of 2 GB": lambda: claiming(1 << 31),
    "a hundred thousand levels": lambda: nested(100_000),
    "a tensor of 2⁴⁰ numbers": lambda: with_tensor([1 << 40], [0, 1 << 42]),
    "a tensor beyond the end": lambda: with_tensor([1 << 20], [0, 1 << 22]),
    "a tensor of more numbers than bytes": lambda: with_tensor([1 << 40], [0, 8]),
    "sizes whose product is 2⁶⁴": lambda: with_tensor([1 << 32, 1 << 32], [0, 8]),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_answered_with_a_code(bomb: str, tmp_path: Path) -> None:
    deployed = Deployment.of("fedavg", tmp_path, rounds=1)
    answer = wire.decode(deployed.nodes["node0"].answer(BOMBS[bomb]()))
    assert (answer.kind, answer.facts) == ("refused", {"code": "unreadable"})


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_a_refused_answer_at_the_server(bomb: str, tmp_path: Path) -> None:
    deployed = Deployment.of("fedavg", tmp_path, rounds=1, fraction=1.0)
    deployed.network.between = lambda node, request, answer: (
        BOMBS[bomb]() if node == "node1" and wire.decode(request).kind != "join" else answer
    )
    served = deployed.serve()
    assert served.history[0]["refused"] == dict.fromkeys(deployed.fed.names[3:6], "unreadable")


PLANS: list[tuple[dict[str, Any], list[str]]] = [
    ({"method": "ditto(lam=0.1)+yogi", "settings": {"model": "mlp(16)"}}, []),
    ({"method": "own.py:mine(a=1)+median", "settings": {}}, ["own.py"]),
    ({"method": "fedavg+../own.py:mine", "settings": {}}, ["../own.py"]),
    ({"method": "fedavg", "settings": {"model": "/tmp/a b/net.py:net"}}, ["/tmp/a b/net.py"]),
    (
        {"method": "fedavg", "settings": {"metric": "m.py:f", "baseline": "b.py:g"}},
        ["b.py", "m.py"],
    ),
    (
        {"method": "fedavg", "settings": {"track": ["t.py:x"], "model": {"a": "n.py:y"}}},
        ["n.py", "t.py"],
    ),
    ({"method": 3, "settings": None}, []),
]


@pytest.mark.parametrize(("plan", "files"), PLANS)
def test_code_that_a_plan_names_is_found_before_it_is_run(
    plan: dict[str, Any], files: list[str]
) -> None:
    assert own_files.named(plan) == files


def test_code_of_a_kit_is_not_run_unless_that_is_agreed_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = {"method": "own.py:mine", "settings": {}}
    with pytest.raises(GlocalError, match=r"not here, 'own\.py'"):
        own_files.check(plan, lambda files: True)
    Path("own.py").write_text("raise SystemExit('it was run')\n")
    asked: list[Any] = []
    with pytest.raises(GlocalError, match="nothing of it was run"):
        own_files.check(plan, asked.append)  # which answers nothing
    assert [list(files) for files in asked] == [["own.py"]]
    own_files.check(plan, lambda files: True)
