"""A participant's folder: its key, the plan it approved, its clients' states, and the record."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from glocal.core import files
from glocal.core.errors import GlocalError
from glocal.data.federation import Federation
from glocal.deploy import counting, node_evaluation
from glocal.deploy.apart import ApartFolder
from glocal.deploy.node_data import own_rows, part_of_plan
from glocal.deploy.plan import DeployPlan
from glocal.deploy.schema_plan import Plan, SchemaPlan, read_plan


@dataclass(frozen=True)
class Approved:
    """What a participant agreed to, with which data, and when."""

    name: str
    address: str
    digest: str
    """Of the plan."""
    data: str | None = None
    """The file with the rows."""
    part: tuple[int, ...] | None = None
    """Or the numbers of the clients in the data that the plan names."""
    at: str = ""
    apart: str | None = None
    """The folder that the node shares with a SuperNode of another user."""

    @classmethod
    def now(
        cls,
        name: str,
        address: str,
        digest: str,
        data: str | None = None,
        apart: str | None = None,
    ) -> Approved:
        """Approved at this moment."""
        at = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(name, address, digest, data, at=at, apart=apart)


class NodeFolder:
    """The files of a participant; the folder is for its user alone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.approved_file = path / "approved.json"
        self.plan_file = path / "plan.json"
        self.authority = path / "ca.crt"
        self.key = path / "key"
        self.public_key = path / "key.pub"
        self.own_socket = path / "socket"
        self.home = path / "node"
        self.audit_file = path / "audit.jsonl"
        self.result_file = self.home / node_evaluation.FILE
        self.counted_file = self.home / counting.FILE
        self.models = self.home / node_evaluation.MODELS
        self.flower_home = path / "flower"
        self.logs = path / "logs"

    def write_approved(self, approved: Approved) -> None:
        """Write what was agreed to."""
        files.write(self.approved_file, files.dump(asdict(approved)))

    @property
    def approved(self) -> Approved:
        """What was agreed to."""
        try:
            given = json.loads(self.approved_file.read_text(encoding="utf-8"))
            part = given.pop("part")
            return Approved(**given, part=None if part is None else tuple(part))
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise GlocalError(
                f"{self.path} is no folder of a participant: make one with glocal deploy join."
            ) from error

    @property
    def apart(self) -> ApartFolder | None:
        """What is shared with a SuperNode of another user; none: it is this user's."""
        shared = self.approved.apart
        return None if shared is None else ApartFolder(Path(shared))

    @property
    def socket(self) -> Path:
        """Where the node listens."""
        return self.own_socket if self.apart is None else self.apart.socket

    def put_aside(self) -> Path | None:
        """Give what the node has of its rounds another name, if there is any."""
        if not self.home.exists():
            return None
        number = 1
        while (place := self.path / f"{self.home.name}.{number}").exists():
            number += 1
        return self.home.rename(place)

    def approved_plan(self) -> Plan:
        """The plan, unless it is another one than was approved."""
        plan = read_plan(self.plan_file)
        if plan.digest != self.approved.digest:
            raise GlocalError(
                f"the plan in {self.path} is not the one that was approved (another version of "
                "glocal, or the file was changed): run glocal deploy join again, and approve it."
            )
        return plan

    def table(self, plan: SchemaPlan) -> counting.OwnTable:
        """The participant's table, of which the plan wants sums and counts."""
        approved = self.approved
        return counting.OwnTable.read(plan, Path(str(approved.data)), approved.name)

    def federation(self, plan: DeployPlan) -> Federation:
        """The participant's clients and their rows."""
        approved = self.approved
        if approved.part is not None:
            return part_of_plan(plan, approved.part)
        fed = own_rows(plan, Path(str(approved.data)), approved.name)
        plan.schema.check(fed)
        return fed


def own_folder(path: Path) -> Path:
    """A folder that is for its user alone; one that is there becomes so."""
    if not path.exists():
        files.make_folder(path.parent)
        path.mkdir(mode=0o700)
    try:
        files.make_folder(path).chmod(0o700)
    except OSError as error:
        raise GlocalError(
            f"{path} cannot be made yours alone ({error.strerror}): choose another folder."
        ) from error
    return path
