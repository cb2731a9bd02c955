"""Deployments of real processes on this machine, and what a simulation makes of the same plan."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import glocal
from deploy.processes import found, rounds_done, running, waited_for
from deploy.processes import glocal as run_glocal
from glocal.core import files, secret, tree
from glocal.deploy.plan import DeployPlan
from glocal.deploy.supervisor import free_port
from glocal.deploy.versions import Versions
from glocal.training.checkpoint_files import Checkpoint, CheckpointFiles

NODES = 3

SETTINGS: dict[str, Any] = {
    "data": "digits",
    "clients": 12,
    "partition": "dirichlet(0.5)",
    "rounds": 3,
    "model": "mlp(16)",
    "engine": "sequential",
    "baseline": "local(max_epochs=3)",
    "validate_every": 0,
    "seed": 3,
}
"""Twelve clients, four at each node."""


def made(folder: Path, method: str, **settings: Any) -> Path:
    """The folder of a new deployment on this machine."""
    plan = folder.with_suffix(".toml")
    plan.write_text(files.toml({"method": method, **SETTINGS, **settings}))
    here = ("--host", "127.0.0.1", "--bind", "127.0.0.1", "--port", free_port())
    done = run_glocal("deploy", "init", folder, "--plan", plan, *here)
    assert done.returncode == 0, done.stderr
    return folder


@contextmanager
def up(folder: Path) -> Iterator[Any]:
    """The server and its nodes, while they run."""
    with running("deploy", "up", folder, "--local", NODES, log=folder / "up.log") as process:
        yield process


def ended(process: Any, folder: Path, limit: float = 900.0) -> None:
    """Wait until all rounds are done."""
    waited_for(lambda: process.poll() is not None, limit)
    assert process.returncode == 0, (folder / "up.log").read_text()


def kill_in_a_round(role: str, folder: Path) -> None:
    """Kill a process, and as the system does, while a node is at work on a message."""
    node = folder / "nodes" / "1"
    waited_for(lambda: found("shim", node))
    server = role in ("superlink", "serverapp")
    (pid, *_) = waited_for(lambda: found(role, folder if server else node))
    os.kill(pid, signal.SIGKILL)


def checkpoint(folder: Path) -> Checkpoint:
    """Where the server stands."""
    newest = CheckpointFiles(folder / "private" / "run" / "checkpoints").newest()
    assert newest is not None
    return newest


def hidden_key(folder: Path) -> Tensor | None:
    """The secret from which noise is drawn, while there is one."""
    secret_tree = checkpoint(folder).trees.get("secret")
    return None if secret_tree is None else secret_tree["secret"]


def assert_same_bits(folder: Path, hidden: Tensor | None = None) -> None:
    """Whether server, clients, history and traffic are those of a simulation of the plan."""
    plan = DeployPlan.read(folder / "plan.json")
    fed = plan.config.federation(announced=False)
    with pytest.MonkeyPatch.context() as patch:
        if hidden is not None:
            patch.setattr(secret, "fresh", lambda: hidden)
        run = glocal.fit(plan.method, fed, **plan.config.arguments())
    assert run.trained is not None
    simulated, end = run.trained.progress, checkpoint(folder)
    assert_equal(end.trees["server"], simulated.server)
    assert end.facts["ledger"] == simulated.traffic.to_dict()
    private = hidden is not None
    assert_same_history(history(folder), files.plain(simulated.history), private=private)
    assert_same_costs(json.loads((folder / "result.json").read_text())["summary"], run.summary)
    ids, states = simulated.clients.saved()
    versions = dict(
        zip(
            end.trees["clients"]["ids"].tolist(),
            end.trees["clients"]["states"]["version"].tolist(),
            strict=True,
        )
    )
    assert set(versions) == set(ids.tolist())
    per_node = len(fed) // NODES
    for place, client in enumerate(ids.tolist()):
        states_of_node = folder / "nodes" / str(client // per_node) / "node" / "states"
        state = Versions(states_of_node).read(fed.names[client], versions[client])
        assert_equal(state or {}, tree.row(states, place))


def assert_same_history(
    ours: list[dict[str, Any]], theirs: list[dict[str, Any]], *, private: bool
) -> None:
    """Whether the rounds' lines say the same, whatever was killed; validation up to rounding."""
    assert [line["round"] for line in ours] == [line["round"] for line in theirs]
    for line, simulated in zip(ours, theirs, strict=True):
        # Nodes of a private plan send no metrics, and their updates clipped.
        others = {"seconds", "update_norm"} if private else {"seconds"}
        shared = {k: v for k, v in line.items() if k not in others}
        needed = {k for k in simulated if not k.startswith(("val_", "train_loss"))} - others
        assert needed <= shared.keys() <= simulated.keys()
        for name, value in shared.items():
            expected = simulated[name]
            if not isinstance(value, str):  # such as the stage
                expected = pytest.approx(expected, rel=1e-5)
            assert value == expected, name


def assert_same_costs(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Whether traffic and privacy in the result are the simulation's."""
    for name in ("params_up", "params_down", "bytes_up", "bytes_down"):
        assert ours[name] == theirs[name], name
    assert ours.get("privacy") == files.plain(theirs.get("privacy"))


def assert_equal(found_tree: Any, wanted: Any) -> None:
    """Whether two trees are the same bit by bit."""
    ours, theirs = dict(tree.flatten(found_tree)), dict(tree.flatten(wanted))
    assert ours.keys() == theirs.keys()
    for name, leaf in theirs.items():
        assert torch.equal(ours[name], leaf.cpu()), name


def history(folder: Path) -> list[dict[str, Any]]:
    """The lines of the rounds."""
    return [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]


def seconds_a_round(folder: Path) -> str:
    """How long the rounds took, as a test prints it."""
    return ", ".join(f"{line['seconds']:.1f} s" for line in history(folder))


def keep(line: str) -> None:
    """Add a line to the file that ``make test-deploy-all`` keeps."""
    if file := os.environ.get("GLOCAL_KEEP"):
        with Path(file).open("a") as lines:
            lines.write(f"{line}\n")


def after_rounds(folder: Path, count: int) -> None:
    """Wait until so many rounds are done."""
    waited_for(lambda: rounds_done(folder) >= count, 600)
