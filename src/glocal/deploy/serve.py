"""The server of a deployment: rounds over a transport, with a checkpoint after each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from glocal.core import files
from glocal.core.errors import GlocalError
from glocal.core.tensor_files import save_tensors
from glocal.core.types import Params
from glocal.deploy.patience import Patience
from glocal.deploy.plan import DeployPlan
from glocal.deploy.remote import RemoteClients
from glocal.deploy.transport import Transport
from glocal.evaluation import metrics
from glocal.evaluation.intervals import nan_mean
from glocal.evaluation.measures import of_task
from glocal.evaluation.summary import Table, verdict_counts
from glocal.slots.server_half import whole_model
from glocal.training import secret_draws
from glocal.training.best_round import at_best
from glocal.training.checkpoint import CheckpointWriter, packed
from glocal.training.checkpoint_files import CheckpointFiles
from glocal.training.loop import Training
from glocal.training.resumed import run_rounds
from glocal.training.run_state import Progress
from glocal.training.side_by_side import LaneGroup

ROSTER = "roster.json"
"""In the server's folder: who joined, by which key, with how many examples."""


@dataclass(frozen=True)
class Served:
    """What a deployment came to."""

    model: Params
    history: list[dict[str, Any]]
    rows: Table
    """A row for each client that sent one."""
    summary: dict[str, Any] = field(default_factory=dict)
    progress: Progress | None = field(default=None, repr=False)
    """Where the server stood after the last round."""


def serve(
    plan: DeployPlan,
    transport: Transport,
    admitted: Mapping[str, bytes],
    folder: Path,
    *,
    patience: Patience | None = None,
    removed: Callable[[], Collection[str]] = tuple,
    on_line: Callable[[dict[str, Any]], None] = lambda line: None,
    stop: Callable[[], bool] = lambda: False,
) -> Served:
    """All rounds that are left, from the newest checkpoint in ``folder``; then the evaluation.

    ``admitted`` has the public key of the node of each client, by the client's name: no other node
    may speak for it. Its order numbers the clients. Those that are ``removed`` by now keep their
    number and are not asked. ``on_line`` gets each round's line, and those of a checkpoint again.
    Where there is no quorum in time, the error names the checkpoint.
    """
    if len(admitted) < 2:
        raise GlocalError("a federation needs two clients or more: admit another.")
    files.make_folder(folder)
    clients = RemoteClients(
        plan, transport, admitted, patience=patience or Patience(), removed=removed
    )
    clients.examples = _examples(clients, folder)
    training = assembled(clients)
    _write_roster(clients, folder)
    writer = _writer(clients, folder, stop)
    if writer.last() is None:
        # What is drawn in secret is drawn once: a server that is killed in its first round goes on.
        begun = training.begin(training.task.params)
        writer.write(0, lambda: packed(begun))

    def on_round(r: int, done: Progress, lines: list[dict[str, Any]]) -> None:
        for line in lines:
            on_line(line)

    (end,) = run_rounds(LaneGroup.of([training]), on_round, writer)
    done = at_best(training, end.progress)
    model = whole_model(training.task, done.server)
    save_tensors(folder / "model.safetensors", model)  # whatever nodes answer below
    served = Served(model, done.history, clients.evaluate(training, done), progress=done)
    served = replace(served, summary=_summary(plan, served, training, done))
    if clients.left_out:
        served.summary["left_out"] = clients.left_out
    result = {"summary": served.summary, "clients": list(served.rows)}
    files.write(folder / "result.json", files.dump(files.plain(result)))
    return served


def assembled(clients: RemoteClients) -> Training:
    """The training of clients that have joined, as the server runs it."""
    plan = clients.plan
    counts = list(zip(*(clients.examples[name] for name in clients.names), strict=True))
    setup = plan.setup(plan.schema.without_rows(clients.names, counts), server=True)
    return replace(plan.runner.check(setup), clients=clients)


def _examples(clients: RemoteClients, folder: Path) -> dict[str, list[int]]:
    """What clients declared when they joined, before the first round: that stays.

    One that has another key since has to declare the same again.
    """
    path = folder / ROSTER
    keys = _hex_keys(clients)
    if not path.is_file():
        return clients.joined()
    found = json.loads(path.read_text())
    if found.keys() != keys.keys():
        raise GlocalError(
            f"other clients are admitted than {path} has, and training has begun: go on with "
            "those, or choose another folder."
        )
    declared = {name: found[name]["examples"] for name in clients.names}
    changed = [name for name in clients.names if found[name]["key"] != keys[name]]
    for name, again in clients.joined(changed).items() if changed else ():
        if again != declared[name]:
            raise GlocalError(
                f"{name} came back with other examples than it had when the rounds began: remove "
                "it; it can join the next deployment."
            )
    return declared


def _write_roster(clients: RemoteClients, folder: Path) -> None:
    """Keep what clients declared, once a training could be made of it."""
    keys = _hex_keys(clients)
    about = {n: {"key": keys[n], "examples": clients.examples[n]} for n in clients.names}
    files.write(folder / ROSTER, files.dump(about))


def _hex_keys(clients: RemoteClients) -> dict[str, str]:
    return {name: key.hex() for name, key in clients.keys.items()}


def _writer(clients: RemoteClients, folder: Path, stop: Callable[[], bool]) -> CheckpointWriter:
    """A checkpoint after each round: nodes keep a few versions of their states, not all."""
    roster = json.dumps([list(clients.names), [clients.examples[n] for n in clients.names]])
    of = f"{clients.plan.digest} {hashlib.sha256(roster.encode()).hexdigest()}"
    return CheckpointWriter(CheckpointFiles(folder / "checkpoints"), of, every=1, stop=stop)


def _summary(
    plan: DeployPlan, served: Served, training: Training, done: Progress
) -> dict[str, Any]:
    """The figures of all clients together, from their rows."""
    rows, traffic = served.rows, done.traffic
    summary: dict[str, Any] = {
        "method": plan.method,
        "clients": len(training.fed),
        "rounds": done.round,
        "params_up": traffic.params_up,
        "params_down": traffic.params_down,
        "bytes_up": traffic.total("bytes_up"),
        "bytes_down": traffic.total("bytes_down"),
        "estimate": "own",
    }
    privacy = training.method(done).privacy
    if privacy is not None:
        summary["privacy"] = privacy.spent(done.server["privacy"], training.setting)
    if (examples := secret_draws.examples_spent(training, done)) is not None:
        summary["example_privacy"] = {**examples, "noise_key": "secret"}  # each node's own
    if rows:
        lower = of_task(training.task).lower
        spread = metrics.fairness(rows["value"], rows["n_test"], lower_is_better=lower)
        summary |= {name: spread[name] for name in metrics.FIGURES}
        summary["evaluated"] = len(rows)
        if rows[0]["benefit"] is not None:
            summary |= verdict_counts(rows["verdict"])
            summary["local_mean"] = nan_mean(rows["local_value"])
            summary["benefit"] = nan_mean(rows["benefit"])
    return summary
