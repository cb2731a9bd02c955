"""What reports need of a run: of one that was trained here, or of one read from its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from glocal.evaluation.summary import Table


class Result(Protocol):
    """A run as far as sentences and tables are about it; :class:`~glocal.experiment.run.Run` is."""

    @property
    def clients(self) -> Table:
        """A row for each client."""
        ...

    @property
    def summary(self) -> dict[str, Any]:
        """The federation's figures."""
        ...

    @property
    def history(self) -> list[dict[str, Any]]:
        """A line for each round."""
        ...

    @property
    def is_baseline(self) -> bool:
        """Whether this is the local baseline itself."""
        ...

    @property
    def seconds(self) -> float:
        """What training took; 0 where nobody knows."""
        ...


@dataclass(frozen=True)
class Recorded:
    """The figures of a run as its ``result.json`` has them: what was NaN is None."""

    clients: Table
    summary: dict[str, Any]
    is_baseline: bool = False
    history: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0


def recorded(method: Mapping[str, Any], history: Sequence[Mapping[str, Any]] = ()) -> Recorded:
    """One method of a ``result.json``, with the lines of its ``metrics.jsonl``."""
    rows = [dict(row) for row in method["clients"]]
    for row in rows:
        row.setdefault("value", row.get("accuracy"))
    return Recorded(
        Table(rows), dict(method["summary"]), bool(method.get("baseline")), [*map(dict, history)]
    )
