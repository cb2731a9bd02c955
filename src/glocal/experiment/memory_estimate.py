"""How much memory and disk a run needs, before it starts; what cannot fit is refused.

What is counted is what cannot be avoided: tensors that are certain to be there at the same time.
What comes and goes inside an operation, the allocator's waste, adaptation, attacks and robust
aggregators are not, so a run may need more than is said here, hardly less. Counting costs some
milliseconds, and no more memory than one client's training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import nn

from glocal.core import hardware as machine
from glocal.core.errors import GlocalError
from glocal.engines import vectorised
from glocal.evaluation.evaluate import at_once
from glocal.evaluation.trials import pool_is_valid
from glocal.experiment import baseline
from glocal.experiment.client_footprint import Client, bytes_of, footprint
from glocal.methods.local import LocalTraining
from glocal.slots.method import Method
from glocal.slots.sharing import nothing
from glocal.slots.weighting import Setting
from glocal.training.checkpoint import CheckpointPolicy
from glocal.training.client_state.placement import check_room, rule, shown
from glocal.training.loop import Training

if TYPE_CHECKING:
    from glocal.data.federation import Federation
    from glocal.experiment.setup import Setup

PROCESS = 200 << 20
"""Bytes of Python and torch in a process of its own, before it has any data."""

ROOM = 2
"""Repeats side by side may take up half of what is free: what comes and goes is not counted."""

COPIES = 5
"""Of a model while it is made and checked: itself, two in a task, two more on another device."""


@dataclass(frozen=True)
class Estimate:
    """What a run needs, from all that this depends on, in bytes and counts."""

    clients: int
    engine: str
    model: int
    baseline_client: Client
    """A client of the local baseline, at one learning rate."""
    rates: int
    cohort: int = 0
    """Clients in a round; none where there are no rounds."""
    rounds: int = 0
    server: int = 0
    one: Client = field(default_factory=Client)
    """A client of the method."""
    marks: int = 0
    """Of one client's model on everybody's test examples, where it is evaluated on those."""
    known: bool = False
    """The local baseline is there already."""
    repeats: int = 1
    processes: int = 1
    data: int = 0
    """What each process loads again."""
    place: str = "device"
    """Where clients' states are kept."""
    baseline_place: str = "device"
    """Where the local baseline's models are kept."""
    at_once: int = 1 << 62
    """Clients whose models are evaluated together."""
    lanes: int = 1
    """Trainings that go side by side."""
    keeps_best: bool = False
    """Whether the best round is kept beside the last, where a training may end early."""
    own_data: bool = False
    """Whether each repeat has data of its own, which is then copied to lie side by side."""

    @property
    def taking_part(self) -> int:
        """Clients that can be expected to be drawn at least once."""
        absent = (1 - self.cohort / self.clients) ** self.rounds
        return min(self.clients, max(self.cohort, round(self.clients * (1 - absent))))

    @property
    def block(self) -> int:
        """Clients of the local baseline that train together, in memory those of all repeats."""
        everybody = self.clients * (self.repeats if self.baseline_place == "device" else 1)
        return min(everybody, max(1, baseline.BLOCK_BYTES // max(1, 3 * self.rates * self.model)))

    @cached_property
    def phases(self) -> Mapping[str, Mapping[str, int]]:
        """Bytes by phase and what they are for; phases follow each other, so the largest counts."""
        s, everybody, cohort = self, self.clients, self.cohort * self.lanes
        near = s.place == "device"
        states = s.taking_part * s.one.state if near else 0
        # A process keeps the baselines of all repeats, and the training of the first.
        repeats = s.repeats
        in_memory = s.baseline_place == "device" and not s.known
        models = repeats * everybody * s.model if in_memory else 0
        evaluated = repeats * everybody * s.marks
        always = {
            "the local baseline's models": models,
            "correctness on all test examples": evaluated,
        }
        if s.processes > 1:
            always["each process"] = PROCESS + s.data
        kept = s.lanes * states + (2 * states if repeats > 1 else 0)
        training = {**always, "the server": s.lanes * s.server, "what clients keep": kept}
        if s.keeps_best:
            training["the best round"] = s.lanes * (s.server + states)
        if s.lanes > 1 and s.own_data:
            training["data side by side"] = s.lanes * s.data
        phases: dict[str, dict[str, int]] = {}
        if cohort:
            phases["a round"] = {
                **training,
                "what a round's clients keep, as it begins": cohort * s.one.state,
                # The last cohort's go while the next one's come.
                "states on their way": 0 if near else 2 * cohort * s.one.state,
                **_round(s, s.one, cohort),
            }
            # Of clients that keep nothing the model is the same: it is evaluated once.
            own = everybody * s.marks if s.one.state else 0
            # The plain loop stacks clients' models anew; they are shared where vmap can.
            copied = s.one.candidates if s.engine == "sequential" else 0
            several = s.one.candidates if s.one.candidates > s.model else 0
            phases["evaluation"] = {
                **training,
                "correctness on all test examples": evaluated + own,
                "clients' models": min(everybody, s.at_once) * (s.one.state + copied + several),
            }
            # What clients keep is copied for a checkpoint, and for the result.
            phases["keeping"] = {**training, "a copy of what clients keep": s.lanes * states}
        if not s.known:
            block, runs = s.block * s.model, s.block * s.rates
            phases["local baseline"] = {
                **always,
                # The last block is still in training; elsewhere, the one before is on its way.
                "the local baseline's models": models - block if in_memory else block,
                # As they stand, as the epoch began, as the last one ended, and the best so far.
                "models in training": runs * (3 * s.baseline_client.state + s.model),
                **_round(s, s.baseline_client, runs),
            }
        return phases

    @property
    def parts(self) -> Mapping[str, int]:
        """What the largest phase needs, in one process."""
        return max(self.phases.values(), key=lambda parts: sum(parts.values()), default={})

    @property
    def total(self) -> int:
        """What the run needs, in all processes."""
        return self.processes * sum(self.parts.values())

    @property
    def disk(self) -> dict[str, int]:
        """Bytes of one repeat that are kept on disk."""
        s = self
        models = s.clients * s.model if s.baseline_place == "disk" and not s.known else 0
        states = s.taking_part * s.one.state if s.cohort and s.place == "disk" else 0
        parts = {"the local baseline's models": models, "clients' states": states}
        return {what: size for what, size in parts.items() if size}


def _round(s: Estimate, one: Client, cohort: int) -> dict[str, int]:
    """What an engine takes for a cohort, beside the states it is given."""
    if s.engine == "sequential":
        # The clients' messages one by one, then stacked.
        return {"a round's updates": 2 * cohort * one.left, "a client's training": one.step}
    chunk = max(1, vectorised.MEMORY // max(1, 6 * s.model))
    if cohort <= chunk:
        return {"clients at once": cohort * max(one.step, one.carry + one.sent)}
    # Chunk by chunk, and then all of it joined.
    updates = cohort * one.left
    return {"a round's updates": updates, "clients at once": max(updates, chunk * one.step)}


def estimate(
    setup: Setup,
    local: LocalTraining,
    training: Training | None = None,
    *,
    processes: int = 1,
    known: bool = False,
) -> Estimate:
    """What a run needs, beside its data; of a plan's stages, the one that needs most.

    ``local`` is how clients train the local baseline, which may be ``known`` already; ``training``
    has the rounds, where there are any. The repeats are divided among ``processes``.
    """
    task, fed, states = setup.task, setup.fed, setup.config.states
    clients, device = len(fed), fed.x.device
    longest = int(fed.train.counts().max())
    setting = training.setting if training else Setting(clients, 1.0, 1)
    where = (task, fed.x, fed.y_train, longest, setting)
    model = bytes_of(task.largest().params)
    models = 0 if known else clients * model
    pooled = pool_is_valid(fed) and device.type == "cpu"
    base = Estimate(
        clients=clients,
        engine=setup.engine.name,
        model=model,
        baseline_client=footprint(Method(local=local, shared=nothing()), *where)[0],
        rates=baseline.lanes_of(setup.alone(local), scored=setup.scored),
        marks=4 * len(fed.test.rows) if pooled else 0,
        known=known,
        repeats=setup.config.repeats,
        processes=processes,
        data=sum(t.nbytes for t in (fed.x, fed.y, fed.y_train)),
        baseline_place=rule(models, device) if states == "auto" else states,
        at_once=at_once(task, fed),
        own_data=_differs_by_fold(fed),
    )
    if training is None:
        return base
    stages = []
    for stage in training.plan.stages:
        one, server = footprint(stage.method, *where)
        taken = models if base.baseline_place == "device" else 0
        now = replace(
            base,
            cohort=min(clients, max(1, round(setting.fraction * clients))),
            rounds=training.last,
            server=server,
            keeps_best=training.patience is not None,
            one=one,
            place=rule(clients * one.state, device, taken) if states == "auto" else states,
        )
        stages.append(now)
    return max(stages, key=lambda e: e.total)


def _differs_by_fold(fed: Federation) -> bool:
    """Whether another split has other rows: tables are fitted anew, noisy labels drawn."""
    data = fed.unsplit
    scaled = data is not None and (data.layout is not None or data.normalised)
    return scaled or not torch.equal(fed.y, fed.y_train)


def check_model(
    build: Callable[[], nn.Module], device: torch.device | str, data: int, name: str
) -> None:
    """Refuse a model that cannot even be made, and data that does not fit beside it.

    ``build`` makes it on torch's meta device, where it costs nothing; so many bytes of ``data`` are
    moved to the ``device`` where it is to be trained.
    """
    try:
        with torch.device("meta"):
            size = sum(p.nbytes for p in build().parameters())
    except GlocalError:
        raise
    except Exception:  # one that cannot be made there: what is wrong with it shows when it is made
        return
    there, host = torch.device(device), torch.device("cpu")
    needs = {host: COPIES * size}
    if there.type != "cpu":
        needs = {host: (COPIES - 1) * size, there: 2 * size + data}
    for where, need in needs.items():
        free = machine.available(where)
        if free is not None and need > free:
            unit, word = _unit(need)
            beside = f", and its data {data / unit:.1f}" if data and where == there else ""
            raise GlocalError(
                f"the model {name} has {size / unit:.1f} {word} of parameters and needs about "
                f"{need / unit:.1f} {word} of memory to be made and checked{beside}, and "
                f"{free / unit:.1f} {word} are free: use a smaller one."
            )


def check(
    need: Estimate | None,
    device: torch.device | str,
    name: str = "this run",
    checkpoints: CheckpointPolicy | None = None,
) -> None:
    """Refuse what cannot fit memory or the disk, with the numbers and what would help."""
    if need is not None and need.disk:
        _check_disk(need, checkpoints)
    free = machine.available(device)
    if need is None or free is None or need.total <= free:
        return
    unit, word = _unit(need.total)
    parts = sorted(need.parts.items(), key=lambda item: -item[1])
    shown = [
        f"{what} {size / unit:.1f}" for what, size in parts if size * 50 > sum(need.parts.values())
    ]
    several = f" in each of {need.processes} processes" if need.processes > 1 else ""
    *some, last = _remedies(need)
    helps = f"{', '.join(some)} or {last}" if some else last
    raise GlocalError(
        f"{name} needs about {need.total / unit:.1f} {word} of memory ({', '.join(shown)}{several})"
        f" and {free / unit:.1f} {word} are free: {helps}."
    )


def _check_disk(need: Estimate, checkpoints: CheckpointPolicy | None) -> None:
    """Refuse what the disk has no room for, beside what this run has written there before."""
    s, parts = need, dict(need.disk)
    # Files of checkpoints stay; else, those of the first repeat and of the present one.
    repeats, folder, written = min(2, s.repeats), None, 0
    if checkpoints is not None:
        repeats, folder, written = s.repeats, checkpoints.folder, checkpoints.on_disk()
        # A block of the baseline in training, and rows that only older checkpoints refer to.
        size = s.block * s.rates * (s.baseline_client.state + s.model)
        block = size if "the local baseline's models" in parts else 0
        rows = min(s.taking_part, s.cohort) * s.one.state if "clients' states" in parts else 0
        parts["checkpoints"] = (checkpoints.keep + 1) * block + checkpoints.keep * rows
    listed = " and ".join(f"{what} ({shown(repeats * size)})" for what, size in parts.items())
    check_room(repeats * sum(parts.values()), folder, f"{listed} take", written)


def processes(need: Estimate | None, wanted: int) -> int:
    """As many processes as are wanted, or as many as fit; one, if not even that does."""
    free = machine.available("cpu")
    if need is None or free is None:
        return wanted
    several = range(wanted, 1, -1)
    return next((n for n in several if replace(need, processes=n).total <= free), 1)


def lanes(need: Estimate | None, device: torch.device | str, most: int) -> int:
    """How many trainings go side by side: as many as there are (``most``), or as fit.

    Where clients' states are not on the device there are too many of them for more than one.
    """
    if need is None or need.place != "device" or not need.cohort:
        return 1
    free = machine.available(device)
    if free is None:
        return most
    several = range(most, 1, -1)
    return next((n for n in several if replace(need, lanes=n).total <= free // ROOM), 1)


def _remedies(need: Estimate) -> list[str]:
    """What takes a tenth or more off the estimate."""
    s = need
    tried = {
        "use --jobs 1": replace(s, processes=1),
        "lower --clients": replace(s, clients=-(-s.clients // 2), cohort=-(-s.cohort // 2)),
        "lower --sampled or --fraction": replace(s, cohort=-(-s.cohort // 2)),
        "lower --repeats": replace(s, repeats=1),
        "use --engine sequential": replace(s, engine="sequential"),
        "use --states disk": replace(s, place="disk", baseline_place="disk"),
    }
    helps = [what for what, other in tried.items() if other.total <= 0.9 * need.total]
    return [*helps, "use a smaller model"]


def _unit(size: int) -> tuple[int, str]:
    return (10**9, "GB") if size >= 10**9 else (10**6, "MB")
