"""Results that cannot be true are left out, and what the others sent is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from deploy.federations import Deployment
from glocal.deploy import wire

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
    deployed = Deployment.of("fedavg", tmp_path, **SETTINGS, baseline="same")
    faults: list[Callable[[dict[str, Any]], Any]] = [
        lambda each: each["row"].pop("value"),
        lambda each: each["row"].update(value="x"),
        lambda each: each["row"].update(value=1e9),
        lambda each: each["row"].update(n_test=10**400),
        lambda each: each["row"].update(n_test=each["row"]["n_test"] + 1),
        lambda each: each["row"].update(client=[1]),
        lambda each: each["row"].update({"\x1b[31m": 1.0}),
        lambda each: each["row"].pop("benefit"),
        lambda each: each["row"].update(verdict=None),
        lambda each: each["tests"].clear(),
        lambda each: each["tests"][""].update(squares=10**400),
        lambda each: each["tests"][""].update(effective=0),
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
