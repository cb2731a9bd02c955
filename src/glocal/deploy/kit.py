"""The kit that every participant gets: where the server is, what it is known by, and the plan.

It is one file of JSON. Nothing in it is secret.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glocal.core import files
from glocal.core.errors import GlocalError, shown
from glocal.deploy.schema_plan import Plan, plan_of_json
from glocal.deploy.wire import VERSION as WIRE

FORMAT = 1


@dataclass(frozen=True)
class Kit:
    """What a participant needs to know to join."""

    address: str
    """The server's host and port."""
    authority: str
    """The certificate that the server's own is signed by, as text."""
    plan: Mapping[str, Any]
    """As JSON holds it."""
    digest: str
    """The plan's, where the kit was made."""

    def write(self, path: Path) -> None:
        """Write it to a file."""
        about = {"kit": FORMAT, "wire": WIRE, "address": self.address}
        files.write(
            path,
            files.dump(
                {**about, "authority": self.authority, "plan": self.plan, "digest": self.digest}
            ),
        )

    @classmethod
    def read(cls, path: Path) -> Kit:
        """The kit in a file; refuses what is none, or one of another version."""
        try:
            given = json.loads(path.read_text(encoding="utf-8"))
            version, wire = given["kit"], given["wire"]
            texts = [given[name] for name in ("address", "authority", "digest")]
            plan = given["plan"]
        except OSError as error:
            raise GlocalError(f"{shown(str(path))} cannot be read: {error.strerror}.") from error
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise GlocalError(
                f"{shown(str(path))} is no kit: give the kit.json that the server's operator sent."
            ) from error
        if (version, wire) != (FORMAT, WIRE):
            raise GlocalError(
                f"the kit is of wire version {shown(wire)}, and this glocal has {WIRE}: install "
                "the version of glocal that the server has."
            )
        if not all(isinstance(text, str) for text in texts) or not isinstance(plan, Mapping):
            raise GlocalError(f"{shown(str(path))} is damaged: ask for the kit again.")
        return cls(texts[0], texts[1], plan, texts[2])

    def approved_plan(self) -> Plan:
        """The plan, if it comes to the same here as where the kit was made."""
        plan = plan_of_json(self.plan)
        if plan.digest != self.digest:
            raise GlocalError(
                "the plan of this kit comes to something else here (another version of glocal, or "
                "the kit was changed): install the server's version, or ask for the kit again."
            )
        return plan
