"""The server's folder: where everything of a deployment is, and who was admitted."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from glocal.core import files
from glocal.core.errors import GlocalError, shown
from glocal.deploy.certificates import fingerprint
from glocal.deploy.patience import Patience
from glocal.deploy.schema_plan import Plan, read_plan
from glocal.deploy.serve import ROSTER


@dataclass(frozen=True)
class Settings:
    """Where the server listens and how long it waits."""

    host: str
    """The name or address that participants reach it by."""
    port: int
    bind: str
    """The address of this machine that it listens at."""
    deadline: float
    quorum: float
    joining: float

    @property
    def address(self) -> str:
        """Host and port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def patience(self) -> Patience:
        """As :func:`~glocal.deploy.serve.serve` takes it."""
        return Patience(deadline=self.deadline, quorum=self.quorum, joining=self.joining)


@dataclass(frozen=True)
class Member:
    """A client of a deployment."""

    client: str
    key: str
    """The public key of its node."""
    removed: bool = False


class ServerFolder:
    """The files of a server; those in ``private`` are for nobody else."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings_file = path / "server.json"
        self.plan_file = path / "plan.json"
        self.kit_file = path / "kit.json"
        self.roster_file = path / "roster.json"
        self.readme = path / "README.md"
        self.audit_file = path / "audit.jsonl"
        self.history_file = path / "history.jsonl"
        self.result_file = path / "result.json"
        self.schema_file = path / "schema.json"
        self.error_file = path / "error.txt"
        self.authority = path / "ca.crt"
        self.certificate = path / "server.crt"
        self.private = path / "private"
        self.authority_key = self.private / "ca.key"
        self.certificate_key = self.private / "server.key"
        self.database = self.private / "link.db"
        self.flower_home = self.private / "flower"
        self.run = self.private / "run"
        self.joined_file = self.run / ROSTER
        self.known_keys_file = self.private / "registered.json"
        self.bundle = path / "bundle"
        self.logs = path / "logs"
        self.failures = self.logs / "serverapp.log"
        self.units = path / "systemd"

    @classmethod
    def opened(cls, path: Path) -> ServerFolder:
        """The folder of a deployment that was made here; refuses any other."""
        folder = cls(path.absolute())
        if not folder.settings_file.exists():
            raise GlocalError(
                f"{path} is no folder of a deployment: make one with glocal deploy init {path}."
            )
        return folder

    @property
    def settings(self) -> Settings:
        """Where it listens and how long it waits."""
        try:
            return Settings(**json.loads(self.settings_file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise GlocalError(f"{self.settings_file} is damaged: make the folder again.") from error

    def write_settings(self, settings: Settings) -> None:
        """Write them."""
        files.write(self.settings_file, files.dump(asdict(settings)))

    @property
    def plan(self) -> Plan:
        """What all agreed on."""
        return read_plan(self.plan_file)

    @property
    def certificates(self) -> tuple[Path, Path, Path]:
        """The authority's and the server's certificates, and the server's key."""
        return self.authority, self.certificate, self.certificate_key

    def members(self) -> list[Member]:
        """All clients that were ever admitted, in order, those that were removed among them."""
        if not self.roster_file.exists():
            return []
        try:
            given: Any = json.loads(self.roster_file.read_text(encoding="utf-8"))
            return [
                Member(str(each["client"]), str(each["key"]), each.get("removed") is True)
                for each in given
            ]
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise GlocalError(f"{self.roster_file} is damaged: admit everybody again.") from error

    @property
    def begun(self) -> bool:
        """Whether all have joined, so that their numbers stay."""
        return self.joined_file.exists()

    def roster(self) -> dict[str, str]:
        """The clients that are in, in order, each with the public key of its node."""
        return {each.client: each.key for each in self.members() if not each.removed}

    def removed(self) -> list[str]:
        """The clients that were removed."""
        return [each.client for each in self.members() if each.removed]

    def admitted(self) -> dict[str, bytes]:
        """The fingerprint of the key of each client's node, as the transport gives it.

        Once the rounds have begun, clients that were removed keep their place in it.
        """
        members = [each for each in self.members() if self.begun or not each.removed]
        return {each.client: fingerprint(each.key).encode() for each in members}

    def known_keys(self) -> dict[str, str | None]:
        """The keys that the SuperLink was told, each with the node's number there, if known."""
        if not self.known_keys_file.exists():
            return {}
        known: dict[str, str | None] = json.loads(self.known_keys_file.read_text(encoding="utf-8"))
        return known

    def write_known_keys(self, known: Mapping[str, str | None]) -> None:
        """Write them: the SuperLink's database outlives it."""
        files.write(self.known_keys_file, files.dump(dict(known)))

    def write_members(self, members: Sequence[Member]) -> None:
        """Write who was admitted."""
        files.write(self.roster_file, files.dump([asdict(each) for each in members]))


def check_name(name: str) -> str:
    """A client's name; refuses what would not be safe in a path or a line."""
    if not re.fullmatch(r"[^\W_][\w .-]{0,63}", name):
        raise GlocalError(
            f"{shown(name)} cannot be a client's name: use letters, digits, blanks, '.', '_' and "
            "'-', beginning with a letter or digit, 64 at most."
        )
    return name
