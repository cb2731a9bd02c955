"""``glocal deploy join``: a participant approves a plan, and its node runs until all is done."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from glocal.core import files, locks
from glocal.core.errors import GlocalError
from glocal.core.progress import note
from glocal.deploy import certificates, flower, own_files
from glocal.deploy.apart import ApartFolder
from glocal.deploy.counting import OwnTable
from glocal.deploy.kit import Kit
from glocal.deploy.node_data import own_rows
from glocal.deploy.node_folder import Approved, NodeFolder, own_folder
from glocal.deploy.own_files import MayRun
from glocal.deploy.schema_plan import Plan, SchemaPlan
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
    plan: Plan
    name: str
    clients: tuple[str, ...]
    data: Path
    public_key: str
    apart: str | None = None
    """The folder that is shared with a SuperNode of another user."""


def prepare(
    path: Path,
    kit_file: Path,
    data: Path,
    name: str,
    may_run: MayRun = lambda files: False,
    apart: Path | None = None,
) -> Application:
    """Make the key, and check the kit, the certificate and the data; nothing is sent.

    What was approved before stays as it is. ``may_run`` is asked before files of Python that the
    plan names are run, unless the plan was approved.
    """
    kit = Kit.read(kit_file)
    split_address(kit.address)
    certificates.check_content(kit.authority.encode(), f"in {kit_file}")
    approved = NodeFolder(path).approved_file.exists() and NodeFolder(path).approved
    if not approved or approved.digest != kit.digest:
        own_files.check(kit.plan, may_run)
    plan = kit.approved_plan()
    if apart is not None:
        ApartFolder(apart.absolute()).check()
    folder = NodeFolder(own_folder(path).absolute())
    public_key = certificates.make_node_key(folder.key)
    files.write(folder.public_key, f"{public_key}\n".encode())
    clients = clients_of(plan, data.absolute(), name)
    if readable_by_others(data.absolute()):
        note(f"{data} can be read by other users of this machine: chmod 600 {data} prevents that.")
    shared = None if apart is None else str(apart.absolute())
    return Application(folder, kit, plan, name, clients, data.absolute(), public_key, shared)


def readable_by_others(path: Path) -> bool:
    """Whether other users of this machine may read a file."""
    if not path.stat().st_mode & stat.S_IROTH:
        return False
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in path.parents)


def clients_of(plan: Plan, data: Path, name: str) -> tuple[str, ...]:
    """The names of the clients in a participant's data, if it fits the plan."""
    if isinstance(plan, SchemaPlan):
        return OwnTable.read(plan, data, name).clients
    fed = own_rows(plan, data, name)
    plan.schema.check(fed)
    return fed.names


def approve(application: Application) -> Path | None:
    """Keep what was agreed to: from now on the node answers requests of this plan.

    States and results of another plan, or of another server's, are moved to the folder returned:
    their rounds are not those of this one.
    """
    folder, kit = application.folder, application.kit
    aside = None
    if folder.approved_file.exists() and {"the plan", "the server's certificate"} & set(
        changes(application)
    ):
        aside = folder.put_aside()
    files.write(folder.authority, kit.authority.encode())
    application.plan.write(folder.plan_file)
    data = str(application.data)
    about = (application.name, kit.address, kit.digest, data, application.apart)
    folder.write_approved(Approved.now(*about))
    if folder.apart is not None:
        folder.apart.write(kit.address, kit.authority.encode(), folder.key.read_bytes())
    return aside


def was_approved(application: Application) -> bool:
    """Whether all of this was approved before."""
    return application.folder.approved_file.exists() and not changes(application)


def changes(application: Application) -> list[str]:
    """What is other than was approved before; an approval of one server is none of another."""
    folder, kit = application.folder, application.kit
    before = folder.approved
    known = folder.authority.read_bytes() if folder.authority.exists() else b""
    same = {
        "the plan": before.digest == kit.digest,
        "the server's address": before.address == kit.address,
        "the server's certificate": known == kit.authority.encode(),
        "your data's file": before.data == str(application.data),
        "your name": before.name == application.name,
        "who runs the SuperNode": before.apart == application.apart,
    }
    return [what for what, is_same in same.items() if not is_same]


def children(folder: NodeFolder) -> tuple[Child, ...]:
    """The participant's processes: the resident node, and Flower's SuperNode unless it is apart."""
    approved = folder.approved
    files.make_folder(folder.flower_home)

    def resident() -> list[str]:
        return [sys.executable, "-m", "glocal.deploy.resident", str(folder.path)]

    def supernode() -> list[str]:
        where = (approved.address, folder.authority, folder.key)
        return flower.supernode(*where, free_port(), folder.socket)

    node = Child(resident, os.environ, folder.logs / "node.log")
    if folder.apart is not None:
        return (node,)
    environment = flower.environment(folder.flower_home)
    return node, Child(supernode, environment, folder.logs / "supernode.log", PAUSE)


def run(folder: NodeFolder, say: Say, patience: float | None = None) -> None:
    """Keep both processes running until the node has done its part and the server has gone.

    With ``patience``, a node that the server does not let in gives up after so many seconds.
    """
    participant = Participant(folder, say)
    counts = isinstance(folder.approved_plan(), SchemaPlan)
    last_file = folder.counted_file if counts else folder.result_file
    begun = last_there = time.monotonic()
    with locks.hold(folder.path), kept(*participant.children):
        while time.monotonic() - last_there < GONE:
            refusal = participant.look()
            if refusal and patience is not None and time.monotonic() - begun > patience:
                raise GlocalError(refusal)
            if not last_file.exists() or participant.sees_server():
                last_there = time.monotonic()
            time.sleep(1.0)


class Participant:
    """The node's process and its SuperNode, and what was said of the connection."""

    def __init__(self, folder: NodeFolder, say: Say) -> None:
        self.folder, self.say = folder, say
        self.address = folder.approved.address
        self.children = children(folder)
        self.resident, self.supernode = self.children[0], (*self.children[1:], None)[0]
        self.was_in = False
        self._told = ""

    def look(self) -> str:
        """Start what is not running; why the server has not let the node in, where it says so."""
        if self.resident.keep() == 2:
            raise GlocalError(_sentence(self.resident.said()))
        if self.supernode is None:
            return ""  # another user's
        if not self.supernode.running and not self.sees_server():
            return self._tell(f"nobody answers at {self.address}.")
        ended = self.supernode.keep()
        if self.supernode.running and "SuperNode ID:" in self.supernode.said():
            self.was_in = True
            self._tell(f"connected to {self.address}.")
        elif ended is not None:
            return self._tell(self._refusal())
        return ""

    def sees_server(self) -> bool:
        """Whether the server answers; raise where it is another one."""
        return is_there(self.address, self.folder.authority)

    def _tell(self, sentence: str) -> str:
        """Say what has changed; a node that was let in once waits as long as it takes."""
        if sentence != self._told:
            self.say(sentence)
            self._told = sentence
        return "" if self.was_in else sentence

    def _refusal(self) -> str:
        """Flower gives the same reason for a key that is not known and for one still connected."""
        if self.was_in or self.folder.audit_file.exists():
            return "the connection was lost: the server lets a node in again after a minute."
        return (
            f"the server does not know the key in {self.folder.public_key} yet: its operator has "
            "to admit it."
        )


def _sentence(said: str) -> str:
    """The last sentence for the user that a process of ours wrote."""
    lines = [line for line in said.splitlines() if line.startswith("glocal: ")]
    return lines[-1].removeprefix("glocal: ") if lines else "the node ended: see its log."
