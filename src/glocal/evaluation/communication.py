"""What a run communicates, counted in parameters by direction and layer set.

One entry a round: what went ``down`` to clients and what came ``up`` from them, summed over the
clients that took part, by the name of the layer set ("shared", "private start", "extra", …). A
parameter sent to two clients counts twice. :func:`published` is the formula of papers instead,
where the model goes down to everybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, SupportsIndex, overload

from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.core.types import Downlink, Uplink

Counts = Mapping[str, int]
"""Parameters communicated, by layer set."""


class Rounds(Sequence[Counts]):
    """One entry a round, never changed: :meth:`plus` gives the next one, without a copy.

    All that follow from each other share one list, and each knows how much of it is its own; so a
    long run does not copy all of its past in every round.
    """

    def __init__(self, entries: Iterable[Counts] = (), length: int | None = None) -> None:
        self._all = entries if isinstance(entries, list) and length is not None else list(entries)
        self._length = len(self._all) if length is None else length

    def plus(self, entry: Counts) -> Rounds:
        """These, and one more."""
        entries = self._all
        if len(entries) > self._length:  # another run continued from here before
            entries = entries[: self._length]
        entries.append(dict(entry))
        return Rounds(entries, self._length + 1)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, i: SupportsIndex) -> Counts: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[Counts]: ...
    def __getitem__(self, i: SupportsIndex | slice) -> Counts | Sequence[Counts]:
        return (self._all if len(self._all) == self._length else self._all[: self._length])[i]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rounds) and list(self) == list(other)

    def __repr__(self) -> str:
        return f"Rounds({list(self)})"


@dataclass(frozen=True)
class Traffic:
    """What a run has communicated so far; :meth:`record` returns the next one."""

    down: Rounds = field(default_factory=Rounds)
    """Server to clients, one entry a round."""
    up: Rounds = field(default_factory=Rounds)
    """Clients to server, one entry a round."""

    def record(self, down: Counts, up: Counts) -> Traffic:
        """The same with one more round; both may be empty (a round nobody took part in)."""
        for counts in (down, up):
            for name, count in counts.items():
                if count < 0:
                    raise GlocalError(
                        f"{count} parameters of {name!r} were communicated: count from 0 up."
                    )
        return Traffic(self.down.plus(down), self.up.plus(up))

    @property
    def params_down(self) -> int:
        """Parameters sent to clients."""
        return sum(map(_total, self.down))

    @property
    def params_up(self) -> int:
        """Parameters sent to the server."""
        return sum(map(_total, self.up))

    def by_set(self, direction: Literal["down", "up"]) -> dict[str, int]:
        """Parameters sent in one direction, by layer set."""
        totals: dict[str, int] = {}
        for counts in self.down if direction == "down" else self.up:
            for name, count in counts.items():
                totals[name] = totals.get(name, 0) + count
        return totals

    def to_dict(self) -> dict[str, list[dict[str, int]]]:
        """Plain dicts of ints, for JSON and checkpoints."""
        return {"down": [dict(c) for c in self.down], "up": [dict(c) for c in self.up]}

    @classmethod
    def from_dict(cls, state: Mapping[str, Sequence[Mapping[str, Any]]]) -> Traffic:
        """The inverse of :meth:`to_dict`."""
        down, up = (
            Rounds({name: int(count) for name, count in counts.items()} for counts in state[key])
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


def published(rounds: int, parameters: int, clients: int, fraction: float) -> int:
    """Parameters communicated as papers count them: ``rounds · |θ| · (K + C·K)``.

    The model goes down to all ``K`` clients and up from the sampled ``C·K``. Liang et al., *Think
    locally, act globally: federated learning with local and global representations*, 2020, print
    these totals; those of a run in stages (their warm-up, then fewer shared layers) add up.
    """
    return rounds * parameters * (clients + round(fraction * clients))


def _total(counts: Counts) -> int:
    return sum(counts.values())
