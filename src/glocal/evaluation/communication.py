"""What a run communicates, counted in parameters by direction and layer set.

One entry a round: what went ``down`` to clients and what came ``up`` from them, summed over the
clients that took part, by the name of the layer set ("shared", "private start", "extra", …). A
parameter sent to two clients counts twice. :func:`published` is the formula of papers instead,
where the model goes down to everybody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.core.types import Downlink, Uplink

Counts = Mapping[str, int]
"""Parameters communicated, by layer set."""


@dataclass
class Traffic:
    """What a run has communicated so far, one entry a round."""

    down: list[dict[str, int]] = field(default_factory=list)
    """Server to clients."""
    up: list[dict[str, int]] = field(default_factory=list)
    """Clients to server."""

    def record(self, down: Counts, up: Counts) -> None:
        """Add a round; both may be empty (nobody took part)."""
        for counts in (down, up):
            for name, count in counts.items():
                if count < 0:
                    raise GlocalError(
                        f"{count} parameters of {name!r} were communicated: count from 0 up."
                    )
        self.down.append(dict(down))
        self.up.append(dict(up))

    @property
    def params_down(self) -> int:
        """Parameters sent to clients."""
        return sum(self.by_set("down").values())

    @property
    def params_up(self) -> int:
        """Parameters sent to the server."""
        return sum(self.by_set("up").values())

    def by_set(self, direction: Literal["down", "up"]) -> dict[str, int]:
        """Parameters sent in one direction, by layer set."""
        totals: dict[str, int] = {}
        for counts in self.down if direction == "down" else self.up:
            for name, count in counts.items():
                totals[name] = totals.get(name, 0) + count
        return totals

    def to_dict(self) -> dict[str, list[dict[str, int]]]:
        """Plain dicts of ints, for JSON and checkpoints."""
        return asdict(self)

    @classmethod
    def from_dict(cls, state: Mapping[str, Sequence[Mapping[str, Any]]]) -> Traffic:
        """The inverse of :meth:`to_dict`."""
        down, up = (
            [{name: int(count) for name, count in counts.items()} for counts in state[key]]
            for key in ("down", "up")
        )
        return cls(down, up)


RoundTraffic = tuple[Counts, Counts]
"""What went down and what came up in a round."""

NO_TRAFFIC: RoundTraffic = ({}, {})

CONTROL = {"params", "round", "rounds", "lr"}
"""Parts of a downlink that are counted elsewhere, or are single numbers that everybody knows."""


def round_traffic(down: Downlink, uplink: Uplink, shared: int, private_start: int) -> RoundTraffic:
    """Parameters communicated in a round; ``private_start`` is what went to those who joined."""
    cohort = len(uplink.ids)
    memory = tree.count({k: v for k, v in down.items() if k not in CONTROL})
    extra = tree.count(uplink.extra) + (cohort if uplink.loss is not None else 0)
    return (
        _present(shared=shared * cohort, private_start=private_start, extra=memory * cohort),
        _present(shared=tree.count(uplink.update), extra=extra),
    )


def _present(**counts: int) -> Counts:
    return {name: count for name, count in counts.items() if count}


def published(down: Counts, up: Counts, cohort: int, clients: int, fraction: float) -> int:
    """A round's parameters as papers count them: ``|θ| · (K + C·K)`` where θ is all that is sent.

    What a client of the cohort received goes down to all ``K`` clients, and what it sent comes up
    from the ``C·K`` sampled ones, both with what is sent beside the update (SCAFFOLD's control
    variate, FedEvg's examples); private layers as they begin are not counted. Liang et al., *Think
    locally, act globally: federated learning with local and global representations*, 2020, print
    these totals; those of a run in stages (their warm-up, then fewer shared layers) add up.
    """
    if not cohort:
        return 0
    received, sent = (
        sum(counts.get(name, 0) for name in ("shared", "extra")) // cohort for counts in (down, up)
    )
    return received * clients + sent * round(fraction * clients)
