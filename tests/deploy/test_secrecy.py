"""No example, no state and no text of an exception leaves a node, and updates leave it clipped."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from deploy.federations import Deployment, nine_clients
from glocal.core import tree, tree_bytes
from glocal.core.types import Uplink
from glocal.data.federation import Federation
from glocal.deploy import wire
from glocal.engines import Sequential
from glocal.slots.privacy import norm

CANARY = b"CANARY!?"
"""Eight bytes that are two ordinary numbers of single precision."""


def with_canary() -> Federation:
    fed = nine_clients()
    x = fed.x.clone()
    x[:, :2] = torch.frombuffer(bytearray(CANARY), dtype=torch.float32)
    return replace(fed, x=x, unsplit=None)


def everything_that_left(deployed: Deployment) -> bytes:
    """All answers, and all files of the server."""
    files = [p.read_bytes() for p in (deployed.folder / "server").rglob("*") if p.is_file()]
    return b"".join([*deployed.network.sent, *files])


def test_no_example_and_no_state_leaves_a_node(tmp_path: Path) -> None:
    fed = with_canary()
    assert CANARY in fed.x.numpy().tobytes()
    deployed = Deployment.of("ditto", tmp_path, fed=fed, baseline="local(max_epochs=2)")
    served = deployed.serve()
    left = everything_that_left(deployed)
    assert len(served.rows) == 9
    assert CANARY not in left
    for client in range(9):
        for leaf in tree.leaves(deployed.state(served, client) or {}):
            if leaf.numel() > 2:
                assert bytes(tree_bytes.raw(leaf)) not in left


def test_the_text_of_an_exception_stays_on_its_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed = Deployment.of("fedavg", tmp_path, fraction=1.0, validate_every=0)
    trained = Sequential.round
    failing = deployed.fed.names[4]

    def raising(self: Sequential, cohort: Any) -> tuple[Uplink, Any]:
        if cohort.fed.names[int(cohort.ids[0])] == failing:
            raise ValueError(f"a row of a patient: {CANARY.decode()}")
        return trained(self, cohort)

    monkeypatch.setattr(Sequential, "round", raising)
    served = deployed.serve()
    assert served.history[0]["absent"] == {failing: "failed"}
    assert CANARY not in everything_that_left(deployed)
    assert any(CANARY.decode() in note for note in deployed.notes)


def test_updates_are_clipped_before_they_leave_and_no_result_does(tmp_path: Path) -> None:
    deployed = Deployment.of("fedavg(lr=1.0)+dp(clip=0.01,noise=0.5)", tmp_path)
    served = deployed.serve()
    answers = [wire.decode(answer) for answer in deployed.network.sent]
    updates = [sent["update"] for m in answers if m.kind == "trained" for sent in m.trees.values()]
    lengths = [float(norm(update)) for update in updates]
    assert len(lengths) >= 12
    assert max(lengths) <= 0.01
    assert min(lengths) > 0.0099  # every one was longer before
    assert served.rows == []
    assert all(m.facts["rows"] == [] for m in answers if m.kind == "evaluated")
    assert {m.kind for m in answers} == {"joined", "trained", "evaluated"}
    assert not any(key.startswith("val_") for line in served.history for key in line)
    own = json.loads((tmp_path / "node0" / "result.json").read_text())
    assert [row["client"] for row in own["clients"]] == list(deployed.fed.names[:3])


@pytest.mark.deploy
def test_results_of_a_private_plan_leave_where_that_is_asked_for(tmp_path: Path) -> None:
    deployed = Deployment.of("fedavg+dp(clip=0.1,noise=0.5)", tmp_path, results=True, rounds=1)
    served = deployed.serve()
    assert len(served.rows) == 9
    assert "val_accuracy" in served.history[-1]


def test_noise_of_clients_is_not_given_to_two_models(tmp_path: Path) -> None:
    """Two answers with the same noise would show what is beneath it; the same one may be given."""
    deployed = Deployment.of("fedavg+dp(clip=0.1,noise=0.5,where=local)", tmp_path, rounds=1)
    requests: list[tuple[str, bytes]] = []

    def between(node: str, request: bytes, answer: bytes) -> bytes:
        if wire.decode(request).kind == "train":
            requests.append((node, request))
        return answer

    deployed.network.between = between
    deployed.serve()
    node, request = requests[0]
    first = wire.decode(deployed.nodes[node].answer(request))
    message = wire.decode(request)
    message.trees["down"]["params"] = tree.map(lambda x: x + 1, message.trees["down"]["params"])
    again = wire.decode(deployed.nodes[node].answer(wire.encode(message)))
    assert set(again.facts["failed"].values()) == {"repeated"}
    assert again.trees == {}
    same = wire.decode(deployed.nodes[node].answer(request))
    for (name, a), (_, b) in zip(tree.flatten(first.trees), tree.flatten(same.trees), strict=True):
        assert torch.equal(a, b), name
