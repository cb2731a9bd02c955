"""Over Flower: what is in a table, a state or an exception is in no byte that leaves its node."""

from __future__ import annotations

import csv
import json
import random
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy import canaries, real, recorder
from deploy.processes import glocal
from deploy.test_real_participants import joined, made

pytest.importorskip("flwr", reason="make test-deploy installs it")
from glocal.core import tree, tree_bytes
from glocal.deploy import audit
from glocal.deploy.node_folder import NodeFolder
from glocal.deploy.plan import DeployPlan
from glocal.deploy.versions import Versions

CLINICS = {"clinic-a": 9.0, "clinic-b": -9.0}
"""How far off some rows are: training fails at the first, and evaluation at the other."""

METHOD = '''
"""Ditto, whose clients keep their oddest row, and which is shown where something fails."""

import torch

from glocal.methods.ditto import ditto


def odd():
    method = ditto()
    local = method.local

    def init(task, params, key):
        row = torch.zeros(next(iter(params.values())).shape[1])  # a place for each feature
        return {"ditto": local.init(task, params, key), "row": row}

    def start(task, down, client):
        return {"ditto": local.start(task, down, client["ditto"]), "row": client["row"]}

    def step(task, down, carry, batch, key):
        rows = torch.cat([carry["row"][None], batch["x"]])
        row = rows[rows.abs().amax(1).argmax()]
        if down["round"] == 1 and row.max() > 5:
            raise ValueError(f"training fails at {row.tolist()}")
        (phase,) = local.phases
        return {"ditto": phase.step(task, down, carry["ditto"], batch, key), "row": row}

    def finish(task, down, carry):
        update, state, extra = local.finish(task, down, carry["ditto"])
        return update, {"ditto": state, "row": carry["row"]}, extra

    def candidates(task, down, client):
        if client["row"].min() < -5:
            raise ValueError(f"evaluation fails at {client['row'].tolist()}")
        return local.candidates(task, down, client["ditto"])

    changed = {"init": init, "start": start, "step": step, "finish": finish}
    return method.replace(local=local.replace(**changed, candidates=candidates))
'''


def write_table(file: Path, far: float = 0.0) -> list[dict[str, str]]:
    """Rows of random numbers and ids; where some are ``far`` off, there are words of nobody else's.

    The example's rows are those of two clients.
    """
    draw, rows = random.Random(secrets.randbits(128)), []
    for number in range(40):
        age = draw.gauss(0.0, 1.0) + far * (number % 4 == 0)
        dose = draw.gauss(0.0, 1.0)
        row = {
            "patient": draw.randbytes(20).hex(),
            "age": f"{age:.15f}",
            "dose": f"{dose:.15f}",
            "smokes": draw.randbytes(20).hex() if far and number % 5 == 0 else "yes",
            "label": ("ill", "well")[draw.random() < 0.5],
        }
        rows.append(
            row
            if far
            else {**row, "smokes": "no" * (number % 2) or "yes", "client": str(number % 2)}
        )
    with file.open("w", newline="") as lines:
        table = csv.DictWriter(lines, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    return rows


def in_the_table(rows: list[dict[str, str]]) -> Iterator[set[bytes]]:
    """Ids, words that the plan does not have, and numbers, as the file has them."""
    for row in rows:
        yield canaries.of_text(row["patient"])
        if len(row["smokes"]) > 3:
            yield canaries.of_text(row["smokes"])
        for name in ("age", "dose"):
            yield canaries.of_number(float(row[name]), row[name])


def in_memory(node: Path) -> Iterator[set[bytes]]:
    """The two numbers of each row as the node's process has them."""
    folder = NodeFolder(node)
    plan = folder.approved_plan()
    assert isinstance(plan, DeployPlan)
    x = folder.federation(plan).x
    assert ((x[:, :2] != x[:, :2].round()).all(1)).all()  # no features of words
    yield from (canaries.of_numbers(row) for row in x[:, :2].tolist())


def in_the_state(node: Path, clinic: str) -> Iterator[set[bytes]]:
    """What the client keeps after its first round."""
    state = Versions(node / "node" / "states").read(clinic, 1)
    assert state is not None
    for name, leaf in tree.flatten(state):
        if leaf.numel() > 2:
            yield canaries.of_bytes(bytes(tree_bytes.raw(leaf)))
        if name.endswith("row"):
            assert float(leaf.abs().max()) > 5


@pytest.mark.deploy
def test_canaries_in_data_states_and_exceptions_leave_no_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_table(tmp_path / "example.csv")
    tables = {
        clinic: write_table(tmp_path / f"{clinic}.csv", far) for clinic, far in CLINICS.items()
    }
    (tmp_path / "own.py").write_text(METHOD)
    received = recorder.record(tmp_path, monkeypatch)
    server, _ = made(tmp_path, method=f"{tmp_path}/own.py:odd", drop=["patient"])
    with joined(tmp_path, *CLINICS):
        done = glocal("deploy", "up", server, limit=900)
        assert done.returncode == 0, done.stderr
    assert [line["absent"] for line in real.history(server)[1:]] == [{"clinic-a": "failed"}]
    rows = json.loads((server / "result.json").read_text())["clients"]
    assert [row["client"] for row in rows] == ["clinic-a"]  # the other's evaluation failed

    requests = canaries.files_of(received)
    told = {"stdout": done.stdout.encode(), "stderr": done.stderr.encode()}
    elsewhere = {**requests, **canaries.files_of(server), **told}
    for clinic, table in tables.items():
        node = tmp_path / f"node-{clinic}"
        for line in audit.read(node / "audit.jsonl"):
            found = (line["bytes"], line["sha256"])
            assert any(recorder.has_message(each, *found) for each in requests.values()), line
        at_home = canaries.files_of(node, tmp_path / f"{clinic}.csv")
        failed = re.findall(
            r"(?:training|evaluation) fails at (\[.*\])", (node / "logs/node.log").read_text()
        )
        assert failed
        kept = [*in_the_table(table), *in_the_state(node, clinic), *map(canaries.of_text, failed)]
        for canary in kept:
            assert canaries.where(canary, at_home)  # so that it would be found
            assert canaries.where(canary, elsewhere) == []
        rows_in_memory = list(in_memory(node))
        assert any(canaries.where(canary, at_home) for canary in rows_in_memory)  # the odd one
        for canary in rows_in_memory:
            assert canaries.where(canary, elsewhere) == []
