"""Participants that leave, or lose their key: the rounds go on without them, and with them anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.federations import Deployment
from deploy.test_same_bits import assert_same
from glocal.core.errors import GlocalError
from glocal.core.interrupts import Stopped
from glocal.deploy import certificates, wire
from glocal.deploy.admit import admit, remove
from glocal.deploy.node import Node
from glocal.deploy.patience import Patience
from glocal.deploy.serve import serve
from glocal.deploy.server_folder import ServerFolder


def test_the_next_round_goes_on_without_it(tmp_path: Path) -> None:
    """And ends where a run ends in which that client did not answer."""
    silent = Deployment.of("ditto", tmp_path / "silent", fraction=1.0, validate_every=0)
    gone, asked = silent.fed.names[4], []

    def fails(node: str, request: bytes, answer: bytes) -> bytes:
        message, reply = wire.decode(request), wire.decode(answer)
        if node == "node1" and message.kind == "train" and message.facts["round"]:
            place = list(reply.facts["examples"]).index(gone)
            del reply.facts["examples"][gone]
            reply.facts["failed"][gone] = "failed"
            trees = [sent for k, sent in reply.trees.items() if k != str(place)]
            left = {str(k): sent for k, sent in enumerate(trees)}
            return wire.encode(wire.Message(reply.kind, reply.facts, left))
        return answer

    silent.network.between = fails
    wanted = silent.serve()

    deployed = Deployment.of("ditto", tmp_path / "removed", fraction=1.0, validate_every=0)
    removed: list[str] = []

    def watch(node: str, request: bytes, answer: bytes) -> bytes:
        message = wire.decode(request)
        asked.append((message.facts.get("round"), gone in message.facts["clients"]))
        return answer

    deployed.network.between = watch
    served = deployed.serve(removed=lambda: removed, on_line=lambda line: removed.append(gone))
    assert not any(is_asked for number, is_asked in asked if number)
    assert "removed" not in served.history[0]
    assert all(line["removed"] == [gone] for line in served.history[1:])
    assert gone not in [row["client"] for row in served.rows]
    assert len(served.rows) == 8
    assert served.progress is not None
    assert wanted.progress is not None
    assert_same(served.progress.server, wanted.progress.server)


def test_with_another_key_it_begins_anew(tmp_path: Path) -> None:
    deployed = Deployment.of("ditto", tmp_path, rounds=4, fraction=1.0)
    with pytest.raises(Stopped):
        deployed.serve(stop=lambda: True)
    again = Node(deployed.plan, deployed.fed.part(range(3, 6)), tmp_path / "again")
    deployed.network.nodes = {**deployed.network.nodes, "again": again.answer}
    own = deployed.fed.names[3:6]
    keys = {name: b"again" if name in own else key for name, key in deployed.keys.items()}
    folder = tmp_path / "server"
    patience = Patience(deadline=30, joining=30, evaluation=30, clock=deployed.network.clock)
    served = serve(deployed.plan, deployed.network, keys, folder, patience=patience)
    assert served.history[1]["absent"] == dict.fromkeys(own, "lost")
    assert all("absent" not in line for line in served.history[2:])
    other = Node(deployed.plan, deployed.fed.part(range(3, 5)), tmp_path / "other")
    deployed.network.nodes = {**deployed.network.nodes, "other": other.answer}
    with pytest.raises(GlocalError, match="cannot join: another's client"):
        serve(
            deployed.plan,
            deployed.network,
            {name: b"other" if name in own else key for name, key in keys.items()},
            folder,
            patience=patience,
        )


@pytest.mark.deploy
def test_the_roster_keeps_places_and_removed_keys_stay_out(tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="make test-deploy installs it")
    folder = ServerFolder(tmp_path)
    first, second, third = (certificates.make_node_key(tmp_path / name) for name in "abc")
    for name, key in (("north", first), ("south", second), ("west", third)):
        admit(folder, name, key)
    remove(folder, "north")
    assert list(folder.roster()) == list(folder.admitted()) == ["south", "west"]
    with pytest.raises(GlocalError, match="this key was removed"):
        admit(folder, "north", first)
    with pytest.raises(GlocalError, match="unknown client 'nord'"):
        remove(folder, "nord")
    fresh = certificates.make_node_key(tmp_path / "d")
    admit(folder, "north", fresh)
    assert list(folder.admitted()) == ["south", "west", "north"]
    folder.joined_file.parent.mkdir(parents=True)
    folder.joined_file.write_text("{}")
    remove(folder, "west")
    assert folder.removed() == ["west"]
    assert list(folder.admitted()) == ["south", "west", "north"]
    with pytest.raises(GlocalError, match="needs two clients or more"):
        remove(folder, "north")
    newest = certificates.make_node_key(tmp_path / "e")
    admit(folder, "west", newest)
    assert list(folder.roster()) == ["south", "west", "north"]
    assert folder.roster()["west"] == newest
    assert folder.removed() == []
