"""A server that is killed in a round, and nodes that are: the end has the same bits."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from deploy.federations import Deployment
from deploy.test_same_bits import assert_same
from glocal.core import secret, tree
from glocal.core.errors import GlocalError, NoRoomError
from glocal.core.interrupts import Stopped
from glocal.deploy import wire
from glocal.deploy.node import Node
from glocal.deploy.serve import Served
from glocal.deploy.versions import Versions


class Killed(BaseException):
    """The process is gone."""


def kill_in(deployed: Deployment, number: int) -> None:
    """The server is killed while one node has answered a round and others have not."""
    answered: list[str] = []

    def between(node: str, request: bytes, answer: bytes) -> bytes:
        if wire.decode(request).facts.get("round") == number:
            answered.append(node)
            if len(answered) == 2:
                raise Killed
        return answer

    deployed.network.between = between


def restart(deployed: Deployment) -> None:
    """Nodes and network anew, from what is on disk."""
    for i, name in enumerate(list(deployed.nodes)):
        part = deployed.fed.part(range(3 * i, 3 * i + 3))
        deployed.nodes[name] = Node(deployed.plan, part, deployed.folder / name)
    deployed.network.nodes = {name: node.answer for name, node in deployed.nodes.items()}
    deployed.network.waiting.clear()
    deployed.network.between = lambda node, request, answer: answer


def assert_same_end(ours: tuple[Deployment, Served], theirs: tuple[Deployment, Served]) -> None:
    (deployed, served), (other, wanted) = ours, theirs
    assert served.progress is not None
    assert wanted.progress is not None
    assert_same(served.progress.server, wanted.progress.server)
    assert served.history == wanted.history
    assert served.progress.traffic == wanted.progress.traffic
    assert served.summary == wanted.summary
    for client in range(len(deployed.fed)):
        state = other.state(wanted, client)
        assert_same(deployed.state(served, client) or {}, state or {})


@pytest.mark.parametrize(
    ("spec", "rounds"),
    [
        ("ditto", [2]),
        pytest.param("fedavg+dp(clip=0.1,noise=0.5)", [0, 1], marks=pytest.mark.deploy),
    ],
)
def test_a_server_that_was_killed_goes_on(
    spec: str, rounds: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = iter([secret.of_seed(1), secret.of_seed(1), secret.of_seed(2), secret.of_seed(3)])
    monkeypatch.setattr(secret, "fresh", lambda: next(keys))
    whole = Deployment.of(spec, tmp_path / "whole")
    wanted = whole.serve()
    deployed = Deployment.of(spec, tmp_path / "killed")
    for number in rounds:
        kill_in(deployed, number)
        with pytest.raises(Killed):
            deployed.serve()
        restart(deployed)
    lines: list[int] = []
    served = deployed.serve(on_line=lambda line: lines.append(line["round"]))
    assert lines == [1, 2, 3]
    assert_same_end((deployed, served), (whole, wanted))


def test_a_server_that_is_asked_to_stop_goes_on_later(tmp_path: Path) -> None:
    whole = Deployment.of("fedavg", tmp_path / "whole")
    wanted = whole.serve()
    deployed = Deployment.of("fedavg", tmp_path / "stopped")
    with pytest.raises(Stopped):
        deployed.serve(stop=lambda: True)
    assert_same_end((deployed, deployed.serve()), (whole, wanted))


def test_a_checkpoint_holds_an_integer_for_each_client(tmp_path: Path) -> None:
    deployed = Deployment.of("ditto", tmp_path)
    served = deployed.serve()
    assert served.progress is not None
    _, kept = served.progress.clients.saved()
    assert list(kept) == ["version"]
    assert int(kept["version"].max()) == 3


def test_a_client_that_lost_its_state_sits_out_and_begins_anew(tmp_path: Path) -> None:
    deployed = Deployment.of("ditto", tmp_path, fraction=1.0, rounds=4)
    lost = deployed.fed.names[4]

    def between(node: str, request: bytes, answer: bytes) -> bytes:
        asked = wire.decode(request)
        if node == "node1" and asked.kind == "train" and asked.facts["round"] == 1:
            folder = deployed.nodes[node].states._of(lost).folder
            shutil.rmtree(folder)
        return answer

    deployed.network.between = between
    served = deployed.serve()
    assert served.history[2]["absent"] == {lost: "lost"}
    assert "absent" not in served.history[3]
    assert deployed.state(served, 4) is not None


def test_a_client_whose_disk_is_full_sits_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed = Deployment.of("ditto", tmp_path, fraction=1.0, rounds=3)
    full, write = deployed.fed.names[4], Versions.write

    def written(self: Versions, client: str, version: int, *rest: Any) -> None:
        if (client, version) == (full, 2):
            raise NoRoomError("no room to write to")
        write(self, client, version, *rest)

    monkeypatch.setattr(Versions, "write", written)
    served = deployed.serve()
    assert [line.get("absent") for line in served.history] == [None, {full: "no room"}, None]
    assert deployed.notes == ["no room to write to"]


def test_other_clients_than_those_who_joined_are_refused(tmp_path: Path) -> None:
    deployed = Deployment.of("fedavg", tmp_path, rounds=1)
    deployed.serve()
    keys = {name: key for name, key in deployed.keys.items() if name != "0"}
    folder = deployed.folder / "server"
    from glocal.deploy.serve import serve

    with pytest.raises(GlocalError, match="training has begun"):
        serve(deployed.plan, deployed.network, keys, folder)


def test_states_that_the_server_may_ask_for_are_kept(tmp_path: Path) -> None:
    """However many rounds came too late: the version that counted is still there."""
    deployed = Deployment.of("ditto", tmp_path, fraction=1.0, rounds=9)
    late = range(1, 8)
    deployed.network.between = lambda node, request, answer: (
        None if node == "node2" and wire.decode(request).facts.get("round") in late else answer
    )
    served = deployed.serve()
    assert all("absent" in served.history[t] for t in late)
    assert "absent" not in served.history[8]
    files = [*(deployed.folder / "node2" / "states").rglob("*.safetensors")]
    assert len(files) <= 3 * 6
    assert all(torch.isfinite(leaf).all() for leaf in tree.leaves(deployed.state(served, 8)))
