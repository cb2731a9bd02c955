"""What is wrong with an answer is noted; the run ends as if that client had sat that round out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from deploy.federations import Deployment
from deploy.test_same_bits import assert_same
from glocal.core import tree
from glocal.core.types import Downlink, Tree
from glocal.deploy import wire
from glocal.deploy.patience import NoQuorumError, Patience
from glocal.deploy.remote import LATE, OLD_ROUND, TOO_LONG
from glocal.deploy.serve import Served
from glocal.training.clients import CohortSteps, LocalClients
from glocal.training.gate import STRIKES, too_long
from glocal.training.loop import Training
from glocal.training.run_state import Progress

SETTINGS: dict[str, Any] = {"fraction": 1.0, "validate_every": 0}
NODE, CLIENT, ROUND = "node1", 4, 1


@dataclass(frozen=True)
class Without(LocalClients):
    """Simulated clients, of whom some sit out one round."""

    clients: tuple[int, ...] = (CLIENT,)

    def round(
        self, training: Training, progress: Progress, down: Downlink, ids: Tensor
    ) -> CohortSteps:
        if progress.round == ROUND:
            ids = torch.tensor([i for i in ids.tolist() if i not in self.clients])
        answers = yield from super().round(training, progress, down, ids)
        return replace(answers, reached=None)  # the whole cohort was


def assert_sat_out(deployed: Deployment, served: Served, *clients: int) -> None:
    """The end is that of a simulation in which these clients sat the round out."""
    setup = deployed.plan.setup(deployed.fed)
    training = replace(deployed.plan.runner.check(setup), clients=Without(clients))
    wanted = training.run(training.begin(training.task.params))
    assert served.progress is not None
    assert_same(served.progress.server, wanted.server)
    _, states = wanted.clients.saved()
    for client in range(len(deployed.fed)):
        assert_same(deployed.state(served, client), tree.row(states, client))


def changing(deployed: Deployment, change: Callable[[wire.Message, Tree], None]) -> None:
    """The node's answer to one round is changed on its way."""

    def between(node: str, request: bytes, answer: bytes) -> bytes:
        message = wire.decode(answer)
        if node != NODE or message.kind != "trained" or message.facts["round"] != ROUND:
            return answer
        place = list(message.facts["examples"]).index(deployed.fed.names[CLIENT])
        change(message, message.trees[str(place)])
        return wire.encode(message)

    deployed.network.between = between


def scaled(factor: float) -> Callable[[wire.Message, Tree], None]:
    def change(message: wire.Message, sent: Tree) -> None:
        sent["update"] = tree.map(lambda x: x * factor, sent["update"])

    return change


def first_leaf(new: Callable[[Tensor], Tensor]) -> Callable[[wire.Message, Tree], None]:
    def change(message: wire.Message, sent: Tree) -> None:
        name = next(iter(sent["update"]))
        sent["update"][name] = new(sent["update"][name])

    return change


def renamed(message: wire.Message, sent: Tree) -> None:
    sent["update"]["other"] = sent["update"].pop(next(iter(sent["update"])))


def examples(factor: int) -> Callable[[wire.Message, Tree], None]:
    def change(message: wire.Message, sent: Tree) -> None:
        name = list(message.facts["examples"])[CLIENT % 3]
        message.facts["examples"][name] *= factor

    return change


FAULTS: dict[str, tuple[Callable[[wire.Message, Tree], None], str]] = {
    "not a number": (scaled(float("nan")), "not finite"),
    "a million times": (scaled(1e6), TOO_LONG),
    "another shape": (first_leaf(lambda x: x[:1]), "shape"),
    "another type": (first_leaf(lambda x: x.double()), "type"),
    "another name": (renamed, "names"),
    "negative examples": (examples(-1), "examples"),
    "a thousandfold examples": (examples(1000), "examples"),
}


def each_fault() -> list[Any]:
    """All of them; those that take the same way as another only where deployments are tested."""
    quick = ("a million times", "a thousandfold examples")
    slow = pytest.mark.deploy
    return [pytest.param(name, marks=() if name in quick else slow) for name in FAULTS]


@pytest.mark.parametrize("fault", each_fault())
def test_a_wrong_answer_leaves_no_trace(fault: str, tmp_path: Path) -> None:
    change, why = FAULTS[fault]
    deployed = Deployment.of("ditto", tmp_path, **SETTINGS)
    changing(deployed, change)
    served = deployed.serve()
    assert served.history[ROUND]["refused"] == {deployed.fed.names[CLIENT]: why}
    assert all("refused" not in line for line in (served.history[0], served.history[2]))
    assert_sat_out(deployed, served, CLIENT)


def test_an_answer_of_an_old_round_leaves_no_trace(tmp_path: Path) -> None:
    deployed = Deployment.of("ditto", tmp_path, **SETTINGS)
    before: list[bytes] = []

    def between(node: str, request: bytes, answer: bytes) -> bytes:
        facts = wire.decode(answer).facts
        if node == NODE and facts.get("round") == ROUND - 1:
            before.append(answer)
        return before[0] if node == NODE and facts.get("round") == ROUND else answer

    deployed.network.between = between
    served = deployed.serve()
    assert served.history[ROUND]["refused"] == dict.fromkeys(deployed.fed.names[3:6], OLD_ROUND)
    assert_sat_out(deployed, served, 3, 4, 5)


def test_a_node_that_is_asleep_past_the_deadline_sits_out(tmp_path: Path) -> None:
    deployed = Deployment.of("ditto", tmp_path, **SETTINGS)

    def between(node: str, request: bytes, answer: bytes) -> bytes | None:
        asleep = node == NODE and wire.decode(request).facts.get("round") == ROUND
        return None if asleep else answer

    deployed.network.between = between
    served = deployed.serve()
    assert served.history[ROUND]["absent"] == dict.fromkeys(deployed.fed.names[3:6], LATE)
    assert "strikes" not in served.history[ROUND]
    assert_sat_out(deployed, served, 3, 4, 5)


def test_no_quorum_in_time_is_an_error_that_names_the_checkpoint(tmp_path: Path) -> None:
    deployed = Deployment.of("fedavg", tmp_path, **SETTINGS)
    deployed.network.between = lambda node, request, answer: (
        None if wire.decode(request).facts.get("round") == ROUND else answer
    )
    with pytest.raises(NoQuorumError, match="start again from the checkpoint of round 1"):
        deployed.serve()
    deployed.network.between = lambda node, request, answer: answer
    served = deployed.serve()
    assert_sat_out(deployed, served)


@pytest.mark.deploy
def test_three_refused_answers_in_a_row_are_the_last_that_are_asked_for(tmp_path: Path) -> None:
    deployed = Deployment.of("fedavg", tmp_path, **{**SETTINGS, "rounds": STRIKES + 2})
    name, asked = deployed.fed.names[CLIENT], []

    def between(node: str, request: bytes, answer: bytes) -> bytes:
        message, facts = wire.decode(answer), wire.decode(request).facts
        if node != NODE or message.kind != "trained":
            return answer
        asked.append(name in facts["clients"])
        if name in message.facts["examples"]:
            message.facts["examples"][name] += 1
        return wire.encode(message)

    deployed.network.between = between
    served = deployed.serve()
    assert asked == [True] * STRIKES + [False] * 2
    strikes = [line["strikes"] for line in served.history[:STRIKES]]
    assert strikes == [{name: 1}, {name: 2}, {name: 3}]
    assert served.history[-1]["quarantined"] == [name]


def test_a_client_that_is_fine_again_begins_to_count_anew(tmp_path: Path) -> None:
    deployed = Deployment.of("fedavg", tmp_path, **SETTINGS)
    changing(deployed, examples(2))
    served = deployed.serve()
    assert served.history[ROUND]["strikes"] == {deployed.fed.names[CLIENT]: 1}
    assert "strikes" not in served.history[ROUND + 1]


def test_answers_that_are_lost_once_are_asked_for_again(tmp_path: Path) -> None:
    deployed = Deployment.of("ditto", tmp_path, **SETTINGS)
    lost: set[bytes] = set()

    def between(node: str, request: bytes, answer: bytes) -> bytes | None:
        first = node == NODE and request not in lost
        lost.add(request)
        return None if first else answer

    deployed.network.between = between
    clock = deployed.network.clock
    patience = Patience(deadline=60, joining=60, evaluation=60, again=5, clock=clock)
    served = deployed.serve(patience=patience)
    assert all("absent" not in line for line in served.history)
    assert_sat_out(deployed, served)


@pytest.mark.deploy
def test_old_requests_that_arrive_again_leave_no_trace(tmp_path: Path) -> None:
    deployed = Deployment.of("ditto", tmp_path, **SETTINGS)
    before: list[tuple[str, bytes]] = []

    def between(node: str, request: bytes, answer: bytes) -> bytes:
        for other, old in before[-4:]:
            deployed.nodes[other].answer(old)
        before.append((node, request))
        return answer

    deployed.network.between = between
    assert_sat_out(deployed, deployed.serve())


def test_who_answers_for_another_is_refused(tmp_path: Path) -> None:
    deployed = Deployment.of("fedavg", tmp_path, **SETTINGS)
    stranger = deployed.fed.names[0]

    def change(message: wire.Message, sent: Tree) -> None:
        message.facts["examples"][stranger] = 5

    changing(deployed, change)
    served = deployed.serve()
    own = deployed.fed.names[3:6]
    assert served.history[ROUND]["refused"] == dict.fromkeys(own, "another's client")


def test_updates_far_longer_than_the_median_are_found() -> None:
    updates = {"w": torch.tensor([[1.0, 0.0], [0.0, 2.0], [30.0, 0.0], [3.0, 0.0]])}
    assert too_long(updates, torch.zeros(4)).tolist() == [False, False, True, False]
    nothing = {"w": torch.tensor([[0.0], [0.0], [1.0]])}
    assert not bool(too_long(nothing, torch.zeros(3)).any())
    assert not bool(too_long({"w": torch.ones(1, 2)}, torch.zeros(1)).any())
