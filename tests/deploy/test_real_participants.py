"""Participants with a table each: from the kit to each one's verdict, and who is not let in."""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.participants import CLINICS, write_settings, write_tables
from deploy.processes import found, glocal, running, waited_for

pytest.importorskip("flwr", reason="make test-deploy installs it")
from glocal.core.errors import GlocalError
from glocal.deploy import flower
from glocal.deploy.bundle import write_bundle
from glocal.deploy.server_folder import ServerFolder
from glocal.deploy.supervisor import free_port

pytestmark = pytest.mark.deploy


def made(folder: Path, name: str = "server", **more: Any) -> tuple[Path, int]:
    """A server's folder and its port."""
    port, plan = more.pop("port", None) or free_port(), write_settings(folder, **more)
    here = ("--host", "127.0.0.1", "--bind", "127.0.0.1", "--port", port, "--joining", 600)
    done = glocal("deploy", "init", folder / name, "--plan", plan, *here)
    assert done.returncode == 0, done.stderr
    return folder / name, port


def joining(folder: Path, clinic: str, table: str = "", kit: Path | None = None) -> list[object]:
    """The words of a participant's command."""
    data = folder / f"{table or clinic}.csv"
    where = ("--folder", folder / f"node-{clinic}")
    kit = kit or folder / "server" / "kit.json"
    return ["deploy", "join", kit, "--data", data, "--as", clinic, *where, "--yes"]


@contextmanager
def joined(folder: Path, *clinics: str, table: str = "") -> Iterator[None]:
    """Participants that run meanwhile, and were admitted."""
    with ExitStack() as stack:
        for clinic in clinics:
            words = joining(folder, clinic, table)
            stack.enter_context(running(*words, log=folder / f"{clinic}.log"))
            key = folder / f"node-{clinic}" / "key.pub"
            waited_for(lambda key=key: key.exists() and key.read_text().endswith("\n"))
            admitted = glocal("deploy", "admit", folder / "server", clinic, key)
            assert admitted.returncode == 0, admitted.stderr
        yield


def test_three_participants_get_their_verdicts(tmp_path: Path) -> None:
    write_tables(tmp_path)
    server, _ = made(tmp_path)
    with joined(tmp_path, *CLINICS):
        done = glocal("deploy", "up", server, limit=900)
        assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines() if "clinic-" in line] == [*CLINICS]
    told = json.loads(glocal("deploy", "status", server, "--json").stdout)
    assert (told["state"], told["rounds_done"], told["clients"]) == ("done", 2, [*CLINICS])
    for clinic in CLINICS:
        node = tmp_path / f"node-{clinic}"
        (row,) = json.loads((node / "node" / "result.json").read_text())["clients"]
        assert row["client"] == clinic
        assert row["verdict"]
        lines = [json.loads(line) for line in (node / "audit.jsonl").read_text().splitlines()]
        assert lines[0]["kind"] == "joined"
        assert [line["kind"] for line in lines].count("trained") == 2
        assert stat.S_IMODE((node / "key").stat().st_mode) == 0o600
        assert stat.S_IMODE(node.stat().st_mode) == 0o700


def test_who_is_not_admitted_or_has_another_servers_kit_is_told_so(tmp_path: Path) -> None:
    write_tables(tmp_path)
    server, port = made(tmp_path)
    other, _ = made(tmp_path, "other", port=port)
    early = glocal(*joining(tmp_path, "clinic-a"), "--patience", 1, limit=300)
    assert early.returncode == 2
    assert early.stderr.splitlines()[-1] == f"glocal: nobody answers at 127.0.0.1:{port}."
    key = tmp_path / "node-clinic-a" / "key.pub"
    for name in ("clinic-a", "its other ward"):
        assert glocal("deploy", "admit", server, name, key).returncode == 0
    with running("deploy", "up", server, log=tmp_path / "up.log"):
        waited_for(lambda: found("serverapp", server))
        stranger = glocal(*joining(tmp_path, "clinic-b"), "--patience", 1, limit=300)
        assert stranger.returncode == 2
        assert "does not know the key" in stranger.stderr.splitlines()[-1]
        words = joining(tmp_path, "clinic-c", kit=other / "kit.json")
        wrong = glocal(*words, "--patience", 1, limit=300)
        assert wrong.returncode == 2
        assert "is not the server of this kit" in wrong.stderr
        assert_runs_no_other_program(server, tmp_path / "program")
        taken = glocal("deploy", "up", other)
        assert taken.returncode == 2
        assert "0 of the two clients" in taken.stderr
        for name in ("clinic-a", "its other ward"):
            glocal("deploy", "admit", other, name, key)
        taken = glocal("deploy", "up", other)
        assert taken.returncode == 2
        assert f"port {port} of 127.0.0.1 cannot be used" in taken.stderr


def assert_runs_no_other_program(server: Path, program: Path) -> None:
    """Whether the SuperLink refuses what is not the deployment's own bundle."""
    write_bundle(program)
    code = program / "glocal_bundle" / "server.py"
    code.write_text(f"open({str(program / 'it was run')!r}, 'w')\n{code.read_text()}")
    home = ServerFolder(server).flower_home
    with pytest.raises(GlocalError, match="403 Forbidden"):
        flower.call(home, ["run", str(program), flower.LINK])
    with pytest.raises(GlocalError, match="403 Forbidden"):
        flower.call(home, ["list", flower.LINK])
    assert not (program / "it was run").exists()


def test_a_node_with_anothers_client_or_another_plan_is_refused(tmp_path: Path) -> None:
    write_tables(tmp_path)
    server, _ = made(tmp_path)
    with joined(tmp_path, "clinic-a", "clinic-b"):
        # The node of clinic-b says that its rows are those of clinic-a.
        node = tmp_path / "node-clinic-b"
        approved = json.loads((node / "approved.json").read_text())
        _approved(node, {**approved, "name": "clinic-a"})
        done = glocal("deploy", "up", server, limit=900)
        assert (done.returncode, done.stderr.splitlines()[-1]) == (
            2,
            "glocal: clinic-b cannot join: another's client.",
        )
        _approved(node, approved)
        plan = json.loads((server / "plan.json").read_text())
        plan["settings"]["rounds"] = 100
        (server / "plan.json").write_text(json.dumps(plan))
        done = glocal("deploy", "up", server, limit=900)
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1].endswith("cannot join: another plan.")


def _approved(node: Path, about: dict[str, Any]) -> None:
    """Change what a node believes that it agreed to, and have its process started again."""
    (node / "approved.json").write_text(json.dumps(about))
    waited_for(lambda: found("node", node))
    for pid in found("node", node):
        os.kill(pid, signal.SIGKILL)
    waited_for(lambda: not found("node", node))
    waited_for(lambda: found("node", node))
