"""What a run communicates, counted in parameters and in bytes by direction and layer set.

One entry a round: what went ``down`` to clients and what came ``up`` from them, summed over the
clients that took part, by the name of the layer set ("shared", "private start", "extra", …). A
parameter sent to two clients counts twice. Of a compressed update the parameters are the numbers
that are sent, and the bytes are of all that is sent: what says where they belong, and on what scale
they are, too (:mod:`glocal.slots.compression`). :func:`published` is the formula of papers instead,
where the model goes down to everybody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.core.types import Downlink, Tree, Uplink
from glocal.slots.compression import MessageSize

Counts = Mapping[str, int]
"""Parameters communicated, or bytes, by layer set."""

Direction = Literal["up", "down", "bytes_up", "bytes_down"]

DIRECTIONS: tuple[Direction, ...] = get_args(Direction)

BYTES = 4
"""Of a parameter in single precision."""


@dataclass
class Traffic:
    """What a run has communicated so far, one entry a round."""

    down: list[dict[str, int]] = field(default_factory=list)
    """Server to clients."""
    up: list[dict[str, int]] = field(default_factory=list)
    """Clients to server."""
    bytes_down: list[dict[str, int]] = field(default_factory=list)
    """In bytes; where none are given, parameters are sent whole in single precision."""
    bytes_up: list[dict[str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bytes_down = self.bytes_down or [_in_bytes(counts) for counts in self.down]
        self.bytes_up = self.bytes_up or [_in_bytes(counts) for counts in self.up]

    def record(
        self,
        down: Counts,
        up: Counts,
        bytes_down: Counts | None = None,
        bytes_up: Counts | None = None,
    ) -> None:
        """Add a round; its counts may be empty (nobody took part)."""
        bytes_down = _in_bytes(down) if bytes_down is None else bytes_down
        bytes_up = _in_bytes(up) if bytes_up is None else bytes_up
        for counts in (down, up, bytes_down, bytes_up):
            for name, count in counts.items():
                if count < 0:
                    raise GlocalError(
                        f"{count} parameters of {name!r} were communicated: count from 0 up."
                    )
        self.down.append(dict(down))
        self.up.append(dict(up))
        self.bytes_down.append(dict(bytes_down))
        self.bytes_up.append(dict(bytes_up))

    @property
    def params_down(self) -> int:
        """Parameters sent to clients."""
        return sum(self.by_set("down").values())

    @property
    def params_up(self) -> int:
        """Parameters sent to the server."""
        return sum(self.by_set("up").values())

    def total(self, direction: Direction) -> int:
        """Parameters or bytes sent in one direction."""
        return sum(self.by_set(direction).values())

    def by_set(self, direction: Direction) -> dict[str, int]:
        """Parameters or bytes sent in one direction, by layer set."""
        totals: dict[str, int] = {}
        rounds: list[dict[str, int]] = getattr(self, direction)
        for counts in rounds:
            for name, count in counts.items():
                totals[name] = totals.get(name, 0) + count
        return totals

    def to_dict(self) -> dict[str, list[dict[str, int]]]:
        """Plain dicts of ints, for JSON and checkpoints."""
        return asdict(self)

    @classmethod
    def from_dict(cls, state: Mapping[str, Sequence[Mapping[str, Any]]]) -> Traffic:
        """The inverse of :meth:`to_dict`."""
        lists = (
            [{name: int(count) for name, count in counts.items()} for counts in state.get(key, ())]
            for key in ("down", "up", "bytes_down", "bytes_up")
        )
        return cls(*lists)


def _in_bytes(counts: Counts) -> dict[str, int]:
    return {name: BYTES * count for name, count in counts.items()}


class RoundTraffic(NamedTuple):
    """What went down and what came up in a round, in parameters and in bytes."""

    down: Counts
    up: Counts
    bytes_down: Counts
    bytes_up: Counts


NO_TRAFFIC = RoundTraffic({}, {}, {}, {})

CONTROL = {"params", "round", "rounds", "lr"}
"""Parts of a downlink that are counted elsewhere, or are single numbers that everybody knows."""


def round_traffic(
    down: Downlink,
    uplink: Uplink,
    message: MessageSize,
    private_start: int,
    received: int | None = None,
) -> RoundTraffic:
    """What was communicated in a round; ``private_start`` is what went to those who joined.

    ``message`` is the size of one client's update as it is sent; ``received`` is how many clients
    the server sent to, where that is not the number of those that answered.
    """
    answered, params = len(uplink.ids), down["params"]
    cohort = answered if received is None else received
    memory = {k: v for k, v in down.items() if k not in CONTROL}
    beside = {**uplink.extra, **({} if uplink.loss is None else {"loss": uplink.loss})}
    width = next((leaf.element_size() for leaf in params.values()), BYTES)
    return RoundTraffic(
        _present(tree.count(params) * cohort, private_start, tree.count(memory) * cohort),
        _present(message.numbers * answered, 0, tree.count(beside)),
        _present(_bytes(params) * cohort, private_start * width, _bytes(memory) * cohort),
        _present(message.bytes * answered, 0, _bytes(beside)),
    )


def _bytes(state: Tree) -> int:
    return sum(leaf.nbytes for leaf in tree.leaves(state))


def _present(shared: int, private_start: int, extra: int) -> Counts:
    counts = {"shared": shared, "private_start": private_start, "extra": extra}
    return {name: count for name, count in counts.items() if count}


def published(
    down: Counts,
    up: Counts,
    cohort: int,
    clients: int,
    fraction: float,
    answered: int | None = None,
) -> int:
    """A round's parameters as papers count them: ``|θ| · (K + C·K)`` where θ is all that is sent.

    What a client of the cohort received goes down to all ``K`` clients, and what it sent (of those
    that ``answered``, where not all did) comes up from the ``C·K`` sampled ones, both with what is
    sent beside the update (SCAFFOLD's control variate, FedEvg's examples); private layers as they
    begin are not counted. Liang et al., *Think locally, act globally: federated learning with local
    and global representations*, 2020, print these totals; those of a run in stages (their warm-up,
    then fewer shared layers) add up.
    """
    each_down, each_up = (
        sum(counts.get(name, 0) for name in ("shared", "extra")) // max(1, number)
        for counts, number in ((down, cohort), (up, cohort if answered is None else answered))
    )
    return each_down * clients + each_up * round(fraction * clients)
