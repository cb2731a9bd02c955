"""``glocal deploy join``: a participant approves a plan, and its node runs until all is done."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from glocal.core import files, locks
from glocal.core.errors import GlocalError
from glocal.deploy import certificates, flower
from glocal.deploy.kit import Kit
from glocal.deploy.node_folder import Approved, NodeFolder
from glocal.deploy.plan import DeployPlan
from glocal.deploy.server_check import is_there, split_address
from glocal.deploy.supervisor import Child, free_port, kept

PAUSE = 5.0
"""Seconds before the SuperNode is started again: one that was killed is let in again only when the
server has missed it for a while."""

GONE = 20.0
"""Seconds that the server is not there, after which all is over for a node that has its result."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Application:
    """A participant that has made its key and knows what it would agree to."""

    folder: NodeFolder
    kit: Kit
    plan: DeployPlan
    name: str
    clients: tuple[str, ...]
    data: Path
    public_key: str


def prepare(path: Path, kit_file: Path, data: Path, name: str) -> Application:
    """Make the key, and check the kit, the certificate and the data; nothing is sent."""
    kit = Kit.read(kit_file)
    split_address(kit.address)
    if not path.exists():
        files.make_folder(path.parent)
        path.mkdir(mode=0o700)
    folder = NodeFolder(path.absolute())
    files.write(folder.authority, kit.authority.encode())
    certificates.check_valid(folder.authority)
    plan = kit.approved_plan()
    approved = Approved.now(name, kit.address, kit.digest, str(data.absolute()))
    public_key = certificates.make_node_key(folder.key)
    files.write(folder.public_key, f"{public_key}\n".encode())
    fed = approved_rows(plan, approved)
    return Application(folder, kit, plan, name, fed, data.absolute(), public_key)


def approved_rows(plan: DeployPlan, approved: Approved) -> tuple[str, ...]:
    """The names of the clients in a participant's data, if it fits the plan."""
    from glocal.deploy.node_data import own_rows

    fed = own_rows(plan, Path(str(approved.data)), approved.name)
    plan.schema.check(fed)
    return fed.names


def approve(application: Application) -> None:
    """Keep what was agreed to: from now on the node answers requests of this plan."""
    folder, kit = application.folder, application.kit
    application.plan.write(folder.plan_file)
    data = str(application.data)
    folder.write_approved(Approved.now(application.name, kit.address, kit.digest, data))


def was_approved(application: Application) -> bool:
    """Whether this very plan was approved with this data before."""
    folder = application.folder
    if not folder.approved_file.exists():
        return False
    before = folder.approved
    return (before.digest, before.data) == (application.kit.digest, str(application.data))


def children(folder: NodeFolder) -> tuple[Child, Child]:
    """The participant's two processes: the resident node, and Flower's SuperNode."""
    approved = folder.approved
    files.make_folder(folder.flower_home)

    def resident() -> list[str]:
        return [sys.executable, "-m", "glocal.deploy.resident", str(folder.path)]

    def supernode() -> list[str]:
        where = (approved.address, folder.authority, folder.key)
        return flower.supernode(*where, free_port(), folder.socket)

    return (
        Child(resident, os.environ, folder.logs / "node.log"),
        Child(
            supernode, flower.environment(folder.flower_home), folder.logs / "supernode.log", PAUSE
        ),
    )


def run(folder: NodeFolder, say: Say, patience: float | None = None) -> None:
    """Keep both processes running until the node has its result and the server has gone.

    With ``patience``, a node that the server does not let in gives up after so many seconds.
    """
    resident, supernode = children(folder)
    address, begun = folder.approved.address, time.monotonic()
    told, was_in, last_there = "", False, time.monotonic()
    with locks.hold(folder.path), kept(resident, supernode):
        while True:
            if resident.keep() == 2:
                raise GlocalError(_sentence(resident.said()))
            there = supernode.running or is_there(address, folder.authority)
            ended = supernode.keep() if there else None
            inside = supernode.running and "SuperNode ID:" in supernode.said()
            was_in = was_in or inside
            state = told
            if inside:
                state = f"connected to {address}; waiting for the rounds."
            elif not there:
                state = f"nobody answers at {address}: trying again."
            elif ended is not None:
                state = LOST if was_in else _unknown(folder)
            if state != told:
                say(state)
                told = state
            failed = not was_in and (not there or ended is not None)
            if failed and patience is not None and time.monotonic() - begun > patience:
                raise GlocalError(state.replace(": trying again", ""))
            if not folder.result_file.exists() or is_there(address, folder.authority):
                last_there = time.monotonic()
            if time.monotonic() - last_there > GONE:
                return
            time.sleep(1.0)


LOST = "the connection was lost: trying again, until the server has missed it too."


def _unknown(folder: NodeFolder) -> str:
    return (
        f"the server does not know the key in {folder.public_key}: ask its operator to admit "
        f"{folder.approved.name}: trying again."
    )


def _sentence(said: str) -> str:
    """The last sentence for the user that a process of ours wrote."""
    lines = [line for line in said.splitlines() if line.startswith("glocal: ")]
    return lines[-1].removeprefix("glocal: ") if lines else "the node ended: see its log."
