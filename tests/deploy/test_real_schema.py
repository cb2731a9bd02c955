"""Over Flower: a schema by sums and counts, then rounds, during which a participant is removed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deploy import real
from deploy.participants import CLINICS, write_settings, write_tables
from deploy.processes import glocal, running
from deploy.test_real_participants import joined

pytest.importorskip("flwr", reason="make test-deploy installs it")
from glocal.deploy.server_folder import ServerFolder
from glocal.deploy.supervisor import free_port


@pytest.mark.deploy_all
def test_participants_compute_the_schema_and_one_is_removed(tmp_path: Path) -> None:
    write_tables(tmp_path)
    (tmp_path / "example.csv").unlink()  # the operator has no data
    server, plan = tmp_path / "server", write_settings(tmp_path, rounds=3)
    here = ("--host", "127.0.0.1", "--bind", "127.0.0.1", "--port", free_port())
    done = glocal("deploy", "init", server, "--plan", plan, *here, "--schema", "federated")
    assert done.returncode == 0, done.stderr
    before = (server / "kit.json").read_text()
    with joined(tmp_path, *CLINICS):
        done = glocal("deploy", "up", server, limit=900)
        assert done.returncode == 0, done.stderr
    assert "The schema is in the plan" in done.stdout
    assert (server / "kit.json").read_text() != before
    for clinic in CLINICS:
        node = tmp_path / f"node-{clinic}"
        lines = [json.loads(line) for line in (node / "audit.jsonl").read_text().splitlines()]
        assert [line["kind"] for line in lines] == ["counted", "counted"]
        assert json.loads((node / "node" / "counted.json").read_text())["sent"]["rows"] == 28
    with (
        joined(tmp_path, *CLINICS),
        running("deploy", "up", server, log=server / "up.log") as process,
    ):
        real.after_rounds(server, 1)
        done = glocal("deploy", "remove", server, "clinic-c")
        assert done.stdout == "clinic-c is out: 2 are left.\n", done.stderr
        real.ended(process, server)
    rounds = real.history(server)
    assert [line.get("removed", []) for line in rounds][-1] == ["clinic-c"]
    rows = json.loads((server / "result.json").read_text())["clients"]
    assert [row["client"] for row in rows] == ["clinic-a", "clinic-b"]
    folder = ServerFolder(server)
    assert set(folder.known_keys()) == set(folder.roster().values())
    real.keep(
        "a schema by sums and counts, then fedavg, a participant removed in round 2: done; rounds "
        f"of {real.seconds_a_round(server)}"
    )
