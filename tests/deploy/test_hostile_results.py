"""Results that cannot be true are left out, and what the others sent is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from deploy.federations import Deployment
from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.deploy import wire
from glocal.deploy.node import kept_secret
from glocal.deploy.remote import TOO_LONG
from glocal.deploy.replies import UNREADABLE
from glocal.deploy.serve import ROSTER
from glocal.evaluation.client_tests import ClientTest

NODE, OWN = "node1", slice(3, 6)
SETTINGS: dict[str, Any] = {"fraction": 1.0, "rounds": 1, "validate_every": 0}


def changing(deployed: Deployment, kind: str, change: Callable[[wire.Message], None]) -> None:
    """One node's answers of a kind are others."""

    def between(node: str, request: bytes, answer: bytes) -> bytes:
        message = wire.decode(answer)
        if node == NODE and message.kind == kind:
            change(message)
        return wire.encode(message)

    deployed.network.between = between


def to_each_row(fault: Callable[[dict[str, Any]], Any], message: wire.Message) -> None:
    for each in message.facts["rows"]:
        fault(each)


def test_rows_that_cannot_be_true_are_left_out(tmp_path: Path) -> None:
    deployed = Deployment.of("fedavg", tmp_path, **SETTINGS)
    faults: list[Callable[[dict[str, Any]], Any]] = [
        lambda each: each["row"].pop("value"),
        lambda each: each["row"].update(value="x"),
        lambda each: each["row"].update(value=1e9),
        lambda each: each["row"].update(n_test=10**400),
        lambda each: each["row"].update(n_test=each["row"]["n_test"] + 1),
        lambda each: each["row"].update(client=[1]),
        lambda each: each["row"].update({"\x1b[31m": 1.0}),
        lambda each: each["row"].pop("benefit"),
        lambda each: each.update(tests=5),
    ]
    own = list(deployed.fed.names[OWN])
    for fault in faults:
        changing(deployed, "evaluated", partial(to_each_row, fault))
        served = deployed.serve()
        assert served.summary["left_out"] == own
        assert served.summary["evaluated"] == len(deployed.fed) - len(own)
        written = json.loads((tmp_path / "server" / "result.json").read_text())
        assert written["summary"]["left_out"] == own
    changing(deployed, "evaluated", lambda message: None)
    assert "left_out" not in deployed.serve().summary


def test_scores_that_cannot_be_true_are_left_out(tmp_path: Path) -> None:
    deployed = Deployment.of("fedavg", tmp_path, **{**SETTINGS, "validate_every": 1, "rounds": 8})
    own = list(deployed.fed.names[OWN])

    def scores(new: Callable[[Tensor], Tensor]) -> Callable[[wire.Message], Any]:
        return lambda m: m.trees.update(scores=tree.map(new, m.trees["scores"]))

    faults: list[Callable[[wire.Message], Any]] = [
        lambda m: m.facts.update(clients=5),
        lambda m: m.facts.update(clients=[deployed.fed.names[0], *own[1:]]),
        lambda m: m.facts.update(clients=[own[0], own[0], own[1]]),
        lambda m: m.trees["scores"].pop("train_loss"),
        lambda m: m.trees.update(scores=torch.ones(3)),
        scores(lambda x: x * float("nan")),
        scores(lambda x: x * 0 + 1e30),
        scores(lambda x: x.int()),
    ]
    changing(deployed, "validated", lambda m: faults[m.facts["round"] - 1](m))
    history = deployed.serve().history
    assert [line["validated"] for line in history] == [len(deployed.fed) - len(own)] * len(faults)


def test_figures_of_tests_that_cannot_be_true_are_none() -> None:
    known = ClientTest(0.1, 0.2, 4.0, -0.3, 0.4, 0.02, 4, 3.0, 3.0)
    assert ClientTest.from_json(asdict(known)) == known
    for name in asdict(known):
        for wrong in (10**400, True, "x", None):
            assert ClientTest.from_json({**asdict(known), name: wrong}) is None
    assert ClientTest.from_json({**asdict(known), "effective": 0}) is None


def test_too_many_declared_examples_are_refused_before_anything_is_kept(tmp_path: Path) -> None:
    deployed = Deployment.of("fedavg", tmp_path, **SETTINGS)
    own = deployed.fed.names[OWN]
    changing(
        deployed, "joined", lambda m: m.facts.update(clients={n: [10**8 + 1, 1, 1] for n in own})
    )
    with pytest.raises(GlocalError, match="more than 100000000 examples"):
        deployed.serve()
    assert not (tmp_path / "server" / ROSTER).exists()


def test_what_is_far_too_long_beside_an_update_is_refused(tmp_path: Path) -> None:
    deployed = Deployment.of("scaffold", tmp_path, **SETTINGS)

    def change(message: wire.Message) -> None:
        for sent in message.trees.values():
            sent["extra"] = tree.map(lambda x: x * 0 + 1e30, sent["extra"])

    changing(deployed, "trained", change)
    own = deployed.fed.names[OWN]
    assert deployed.serve().history[0]["refused"] == dict.fromkeys(own, TOO_LONG)


def test_answers_that_contradict_themselves_or_say_unknown_codes_are_refused(
    tmp_path: Path,
) -> None:
    deployed = Deployment.of("fedavg", tmp_path, **{**SETTINGS, "rounds": 2})
    own = deployed.fed.names[OWN]

    def change(message: wire.Message) -> None:
        message.facts["failed"] = dict.fromkeys(own, "lost")
        if message.facts["round"] == 1:
            message.facts.update(examples={}, failed=dict.fromkeys(own, "\x1b[2J"))

    changing(deployed, "trained", change)
    for line in deployed.serve().history:
        assert line["refused"] == dict.fromkeys(own, UNREADABLE)


def test_a_nodes_secret_appears_whole_and_stays(tmp_path: Path) -> None:
    key = kept_secret(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["secret.safetensors"]
    assert (tmp_path / "secret.safetensors").stat().st_mode & 0o777 == 0o600
    assert torch.equal(kept_secret(tmp_path), key)
