"""``glocal deploy up``: the SuperLink runs, and the rounds, again and again until they are done."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from glocal.core import locks
from glocal.core.errors import GlocalError, shown
from glocal.deploy import audit, certificates, flower
from glocal.deploy.flower_server import FOLDER
from glocal.deploy.init import write_kit
from glocal.deploy.plan import DataSchema
from glocal.deploy.schema_plan import SchemaPlan
from glocal.deploy.server_check import check_port, is_there
from glocal.deploy.server_folder import ServerFolder
from glocal.deploy.supervisor import Child, kept

STARTING = 90.0
"""Seconds that a ServerApp may take to begin."""

TRIES = 5
"""How often in a row the server may fail without a round that came to its end."""

Say = Callable[[str], None]
OnLine = Callable[[dict[str, Any]], None]


def run(
    folder: ServerFolder,
    say: Say,
    on_line: OnLine,
    meanwhile: Callable[[], None] = lambda: None,
) -> None:
    """Keep the server running until the rounds are done and there is a result.

    ``on_line`` gets each round's line, and ``meanwhile`` is called every second or so.
    """
    certificates.check_valid(folder.certificate)
    if (clients := len(folder.roster())) < 2:
        raise GlocalError(
            f"{clients} of the two clients that a federation has at least were admitted: send "
            f"{folder.kit_file} to the participants, and admit their keys with glocal deploy admit."
        )
    plan = folder.plan
    with locks.hold(folder.path):
        server = Server(folder, say, on_line)
        if not server.last_file.exists():
            check_port(folder.settings.bind, folder.settings.port)
            folder.error_file.unlink(missing_ok=True)
            with kept(server.superlink):
                while not server.last_file.exists():
                    server.look()
                    meanwhile()
                    time.sleep(0.5)
        server.tell()
        if isinstance(plan, SchemaPlan):
            adopt_schema(folder, plan, say)


def adopt_schema(folder: ServerFolder, plan: SchemaPlan, say: Say) -> None:
    """Make the plan with the schema that participants computed, and the kit to send them."""
    found = json.loads(folder.schema_file.read_text(encoding="utf-8"))
    for client, why in found["refused"].items():
        say(f"the schema is without {client}: {why}.")
    for column, became in found["columns"].items():
        if became.startswith("left out"):
            say(f"column {shown(column)} was {became}.")
    whole = plan.with_schema(DataSchema.from_json(found["schema"]))
    write_kit(folder, whole)
    whole.write(folder.plan_file)  # last: until then, this is done again


class Server:
    """The SuperLink, the rounds that were submitted to it, and what of them was told."""

    def __init__(self, folder: ServerFolder, say: Say, on_line: OnLine) -> None:
        self.folder, self.say, self.on_line = folder, say, on_line
        settings, where = folder.settings, folder.certificates
        environment = {**flower.environment(folder.flower_home), FOLDER: str(folder.path)}

        def command() -> list[str]:
            at = (settings.bind, settings.port, where, folder.database)
            return flower.superlink(*at, folder.bundle)

        self.superlink = Child(command, environment, folder.logs / "superlink.log", pause=1.0)
        # What is there when all is done.
        counts = isinstance(folder.plan, SchemaPlan)
        self.last_file = folder.schema_file if counts else folder.result_file
        self.failures = 0
        self.told = 0
        self._members = folder.members()
        self._submitted: float | None = None  # when, to the SuperLink that runs now
        self._began = False  # whether its ServerApp was seen
        self._noted = 0  # bytes in the log of its failures before it

    def look(self) -> None:
        """Start what is not running, hand on what is new; raise where that leads nowhere."""
        if (code := self.superlink.keep()) is not None:
            self._failed(f"the SuperLink ended ({code})", self.superlink.log)
            self._submitted = None
        if self._submitted is None:
            if self.superlink.running and is_there(self._own_address, self.folder.authority):
                self._submit()
        elif locks.held(self.folder.run):
            self._began = True
            self._without_removed()
        elif _size(self.folder.failures) > self._noted:
            self._failed("the rounds failed", self.folder.failures)
            self._submit()
        elif self._began or time.monotonic() - self._submitted > STARTING:
            self._failed("the rounds were interrupted", self.superlink.log)
            self._submit()
        self.tell()
        if self.folder.error_file.exists():
            raise GlocalError(self.folder.error_file.read_text(encoding="utf-8"))

    @property
    def _own_address(self) -> str:
        """How this machine itself reaches the server: its certificate is for this, too."""
        return f"127.0.0.1:{self.folder.settings.port}"

    def _failed(self, what: str, log: Path) -> None:
        if self.last_file.exists():
            return
        self.failures += 1
        if self.failures > TRIES:
            raise GlocalError(f"{what} {self.failures} times in a row: see {log}.")
        self.say(f"{what}; starting again from the last checkpoint.")

    def _submit(self) -> None:
        """Let in who was admitted, and submit the rounds that are left."""
        self._noted = _size(self.folder.failures)
        try:
            self._let_in()
            flower.call(self.folder.flower_home, ["run", str(self.folder.bundle), flower.LINK])
        except GlocalError as error:
            self._failed(str(error).rstrip("."), self.superlink.log)
            return
        self._submitted, self._began = time.monotonic(), False

    def _without_removed(self) -> None:
        """Take back the keys of nodes that were removed while the rounds run."""
        members = self.folder.members()
        if members != self._members:
            self._members = members
            try:
                self._let_in()
            except GlocalError as error:  # they are not asked either way
                self.say(str(error))

    def _let_in(self) -> None:
        """Tell the SuperLink the keys of nodes that are in, and take back those that are not."""
        wanted, known = dict.fromkeys(self.folder.roster().values()), self.folder.known_keys()
        for key in wanted:
            if key not in known:
                known[key] = self._register(key)
                self.folder.write_known_keys(known)
        for key, node in list(known.items()):
            if key not in wanted:
                if node is not None:
                    self._call("unregister", node)
                del known[key]
                self.folder.write_known_keys(known)

    def _register(self, key: str) -> str | None:
        """Tell the SuperLink a node's key; the node's number there, unless it knows it already."""
        file = self.folder.private / "node.pub"
        file.write_text(f"{key}\n", encoding="utf-8")
        try:
            return str(self._call("register", str(file))["node-id"])
        except GlocalError as error:
            if "already" not in str(error).lower():
                raise
            return None

    def _call(self, action: str, argument: str) -> Mapping[str, Any]:
        home = self.folder.flower_home
        return flower.call(home, ["supernode", action, argument, flower.LINK])

    def tell(self) -> None:
        """Hand on the lines of the history that are new.

        A run that went on from its checkpoint wrote the lines before it again.
        """
        lines = audit.read(self.folder.history_file)
        for line in lines[self.told :]:
            self.on_line(line)
            self.failures = 0
        self.told = max(self.told, len(lines))


def _size(log: Path) -> int:
    """Bytes in a log, which may not be there yet."""
    return log.stat().st_size if log.exists() else 0
