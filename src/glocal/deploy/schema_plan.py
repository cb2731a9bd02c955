"""A plan whose schema is still to come: participants compute it together, by sums and counts.

They approve this one first, which says what of their tables leaves them. The plan that follows has
the schema in it, and so another digest: they see it, and approve it, before anyone trains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from glocal.core import files
from glocal.core.errors import GlocalError
from glocal.core.validation import integer
from glocal.deploy import plan as plans
from glocal.deploy.plan import DataSchema, DeployPlan
from glocal.experiment.config import Config

LEAST = 5
"""Rows that a category needs to be named, and values that a column needs for its sums."""


@dataclass(frozen=True)
class SchemaPlan:
    """A method, a configuration, and what participants say of their tables."""

    method: str
    config: Config
    least: int = LEAST
    results: bool | None = None
    """As that of the plan that follows."""

    def __post_init__(self) -> None:
        integer(self.least, "the least count", 1)
        for refused in plans.refusals(self.config):
            raise GlocalError(refused)
        if self.config.preprocessing == "client":
            raise GlocalError(plans.OWN_STATISTICS)
        if plans.federated(self.method).private:
            raise GlocalError(
                "a schema by sums and counts of the participants is not protected by the privacy "
                "of this plan: take the schema of data that is nobody's, without --schema."
            )

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the plan and of the code."""
        return plans.digest_of(self.method, self.config, self.to_json())

    @property
    def of_classes(self) -> bool:
        """Whether labels are classes."""
        return self.config.task not in ("regression", "counts")

    def with_schema(self, schema: DataSchema) -> DeployPlan:
        """The plan that everybody trains by."""
        return DeployPlan(self.method, self.config, schema, self.results)

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON holds it."""
        return plans.plan_json(self.method, self.config, {"least": self.least}, self.results)

    def write(self, path: Path) -> None:
        """Write it to a file, atomically."""
        files.write(path, files.dump(self.to_json()))


Plan = DeployPlan | SchemaPlan


def plan_of_json(given: Any) -> Plan:
    """A plan with its schema, or one whose schema is to come; refuses what is neither."""
    method, config, schema, results = plans.parts_of(given)
    if isinstance(schema, Mapping) and schema.keys() == {"least"}:
        return SchemaPlan(method, config, schema["least"], results)
    return DeployPlan.from_json(given)


def read_plan(path: Path) -> Plan:
    """The plan in a file."""
    return plan_of_json(plans.json_of(path))
