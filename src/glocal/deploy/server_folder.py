"""The server's folder: where everything of a deployment is, and who was admitted."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from glocal.core import files
from glocal.core.errors import GlocalError, shown
from glocal.deploy.certificates import fingerprint
from glocal.deploy.patience import Patience
from glocal.deploy.plan import DeployPlan
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
        self.bundle = path / "bundle"
        self.logs = path / "logs"
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
    def plan(self) -> DeployPlan:
        """What all agreed on."""
        return DeployPlan.read(self.plan_file)

    @property
    def certificates(self) -> tuple[Path, Path, Path]:
        """The authority's and the server's certificates, and the server's key."""
        return self.authority, self.certificate, self.certificate_key

    def roster(self) -> dict[str, str]:
        """The clients that were admitted, in order, each with the public key of its node."""
        if not self.roster_file.exists():
            return {}
        try:
            given: Any = json.loads(self.roster_file.read_text(encoding="utf-8"))
            return {str(each["client"]): str(each["key"]) for each in given}
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise GlocalError(f"{self.roster_file} is damaged: admit everybody again.") from error

    def admitted(self) -> dict[str, bytes]:
        """The fingerprint of the key of each client's node, as the transport gives it."""
        return {name: fingerprint(key).encode() for name, key in self.roster().items()}

    def write_roster(self, roster: dict[str, str]) -> None:
        """Write who was admitted."""
        rows = [{"client": name, "key": key} for name, key in roster.items()]
        files.write(self.roster_file, files.dump(rows))


def check_name(name: str) -> str:
    """A client's name; refuses what would not be safe in a path or a line."""
    if not re.fullmatch(r"[^\W_][\w .-]{0,63}", name):
        raise GlocalError(
            f"{shown(name)} cannot be a client's name: use letters, digits, blanks, '.', '_' and "
            "'-', beginning with a letter or digit, 64 at most."
        )
    return name
