"""Checkpoints, to resume from: a method's rounds, epochs of the local baseline and of adaptation.

Everything that a training is made of between two rounds is its
:class:`~glocal.training.run_state.Progress` (the server's state with its optimiser, weighting,
memory and privacy count, all clients' states, what was communicated, the history, and with privacy
the secret key); all that is drawn is drawn from the seed or that key, the round and the client. So
a checkpoint is a Progress, and evaluation after the last round is done again.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.core.interrupts import Stopped, stop_requested
from glocal.core.progress import print_note
from glocal.core.types import Tree
from glocal.core.validation import integer
from glocal.evaluation.communication import Traffic
from glocal.training.best_round import packed_best, unpacked_best
from glocal.training.checkpoint_files import Checkpoint, CheckpointFiles
from glocal.training.client_state.store import ClientStore
from glocal.training.loop import Training
from glocal.training.run_state import Progress

FORMAT = 2

SHARE = 20
"""By default a checkpoint is written when training took so many times as long as the last one."""


@dataclass(frozen=True)
class CheckpointPolicy:
    """Where checkpoints go and how often they are written.

    ``every`` is in rounds; 0 is as often as it costs a twentieth of the time or less. It changes
    nothing in what comes out.
    """

    folder: Path
    every: int = 0
    keep: int = 2
    baseline: Path | None = None
    """Where those of the local baseline go, if it is shared with other methods."""
    stop: Callable[[], bool] = stop_requested
    """Asked after each round or epoch: if so, a checkpoint is written and ``Stopped`` raised."""
    note: Callable[[str], None] = print_note
    """Told in a sentence what is found damaged."""

    def __post_init__(self) -> None:
        integer(self.every, "every of checkpoints", 0)
        integer(self.keep, "keep of checkpoints", 1)

    def on_disk(self) -> int:
        """Bytes of clients' states and models that are there already, beside the checkpoints."""
        folders = {self.folder, self.baseline or self.folder}
        files = {file for folder in folders for file in folder.rglob("*.rows")}
        return sum(file.stat().st_size for file in files)

    def rounds(
        self, first: int, of: str, last: int | None = None, what: str = "repeat"
    ) -> CheckpointWriter:
        """The writer for a method's ``first``-th repeat (from 0), or those up to the ``last``.

        ``what`` they are called: where rates are tried, each is one of its own.
        """
        name = f"{what}-{first + 1}"
        if last is not None and last > first:
            name = f"{what}s-{first + 1}-{last + 1}"
        return self._writer(self.folder / name, of)

    def side_by_side(self, first: int, what: str = "repeat") -> int | None:
        """How many repeats from the ``first`` on were trained together, if any were before."""
        if any(self.folder.glob(f"{what}-{first + 1}/*.safetensors")):
            return 1
        lasts = [
            int(path.parent.name.rpartition("-")[2])
            for path in self.folder.glob(f"{what}s-{first + 1}-*/*.safetensors")
        ]
        return max(lasts) - first if lasts else None

    def epochs(self, repeat: int, of: str) -> CheckpointWriter:
        """The writer for the local baseline's ``repeat``-th repeat, whatever else is trained."""
        folder = self.baseline or self.folder
        return self._writer(folder / f"alone-{repeat + 1}-{_short(of)}", of)

    def adaptation(self, repeat: int, of: str) -> CheckpointWriter:
        """The writer for the ``repeat``-th repeat's clients, who adapt what they were given."""
        return self._writer(self.folder / f"adapted-{repeat + 1}-{_short(of)}", of)

    def _writer(self, folder: Path, of: str) -> CheckpointWriter:
        return CheckpointWriter(
            CheckpointFiles(folder, self.keep, self.note), of, self.every, self.stop
        )


def _short(text: str) -> str:
    """A part of a folder's name, by which trainings that share it are told apart."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass
class CheckpointWriter:
    """The checkpoints of one training; ``of`` says which, so that no other is taken for it."""

    series: CheckpointFiles
    of: str
    every: int = 0
    stop: Callable[[], bool] = stop_requested
    _written: float = field(default_factory=lambda: time.monotonic())
    _cost: float = 0.0

    def last(self) -> Checkpoint | None:
        """The newest that is whole; refuses one of another training."""
        newest = self.series.newest()
        if newest is None:
            return None
        if newest.facts.get("format") != FORMAT:
            raise GlocalError(
                f"the checkpoints in {self.series.folder} were written by another version (format "
                f"{newest.facts.get('format')}, and this one reads {FORMAT}): resume with that one."
            )
        if newest.facts.get("of") != self.of:
            raise GlocalError(
                f"the checkpoints in {self.series.folder} are of another training: its data, "
                "method, model or settings differ; choose another folder."
            )
        return newest

    def after(
        self, number: int, what: Callable[[], tuple[Mapping[str, Any], Tree]], last: bool
    ) -> bool:
        """After a round or epoch: write where it stands if that is due, stop if that is asked.

        Returns whether it was written.
        """
        stop = self.stop()
        due = last or stop or self._due(number)
        if due:
            self.write(number, what)
        if stop:
            raise Stopped
        return due

    def write(self, number: int, what: Callable[[], tuple[Mapping[str, Any], Tree]]) -> None:
        """Write where it stands."""
        began = time.monotonic()
        facts, trees = what()
        self.series.write(number, {"format": FORMAT, "of": self.of, **facts}, trees)
        self._written = time.monotonic()
        self._cost = self._written - began

    def _due(self, number: int) -> bool:
        if self.every:
            return number % self.every == 0
        # The clock decides how often something is written, never what.
        return time.monotonic() - self._written >= SHARE * self._cost


def packed(progress: Progress) -> tuple[dict[str, Any], Tree]:
    """A training's progress as facts and trees."""
    facts = {
        "stage": progress.stage,
        "stage_began": progress.stage_began,
        "ledger": progress.traffic.to_dict(),
        "history": progress.history,
    }
    about, best = packed_best(progress.best)
    trees = {"server": progress.server, "clients": progress.clients.packed(progress.round)}
    for name, kept in (("secret", progress.secret), ("took_part", progress.took_part)):
        if kept is not None:
            trees[name] = {name: kept}
    return facts | about, trees | best


def packed_lanes(progresses: Sequence[Progress]) -> tuple[dict[str, Any], Tree]:
    """Trainings side by side as facts and trees; a single one as :func:`packed` has it."""
    if len(progresses) == 1:
        return packed(progresses[0])
    lanes, trees = [], {}
    for r, progress in enumerate(progresses):
        facts, trees[f"lane {r + 1}"] = packed(progress)
        lanes.append({"round": progress.round, **facts})
    return {"lanes": lanes}, trees


def unpacked_lanes(checkpoint: Checkpoint, trainings: Sequence[Training]) -> list[Progress]:
    """The inverse of :func:`packed_lanes`."""
    if len(trainings) == 1:
        return [unpacked(checkpoint, trainings[0])]
    lanes = checkpoint.facts.get("lanes")
    if not isinstance(lanes, list) or len(lanes) != len(trainings):
        raise GlocalError(
            f"checkpoint {checkpoint.number} is not of {len(trainings)} repeats: train them again."
        )
    return [
        unpacked(Checkpoint(facts["round"], facts, checkpoint.trees[f"lane {r + 1}"]), training)
        for r, (facts, training) in enumerate(zip(lanes, trainings, strict=True))
    ]


def reclaim(progress: Progress, training: Training, writer: CheckpointWriter) -> None:
    """Room in the file of states that no kept checkpoint refers to any more is used again."""
    file, oldest = progress.clients.settled_file(), writer.series.oldest()
    if file is None or oldest is None:
        return
    file.reclaim(oldest)
    if oldest >= progress.stage_began:
        for stage in range(progress.stage):
            path = training.storage.path(stage)
            if path is not None:
                path.unlink(missing_ok=True)


def unpacked(checkpoint: Checkpoint, training: Training) -> Progress:
    """The inverse of :func:`packed`; refuses what does not fit the training."""
    facts, trees, device = checkpoint.facts, checkpoint.trees, training.fed.x.device
    try:
        progress = Progress(
            server=tree.to(trees["server"], device),
            clients=ClientStore(0),
            traffic=Traffic.from_dict(facts["ledger"]),
            stage=int(facts["stage"]),
            stage_began=int(facts["stage_began"]),
            round=checkpoint.number,
            history=list(facts["history"]),
            best=unpacked_best(facts, trees, device),
            took_part=trees.get("took_part", {}).get("took_part"),
            secret=trees.get("secret", {}).get("secret"),
        )
        method = training.method(progress)
        like = method.begin(training.task, training.task.params, training.setting)
        fits = tree.structure(progress.server).keys() == like.keys() and tree.structure(
            progress.server["params"]
        ) == tree.structure(like["params"])
        rounds = progress.round
        told = len(progress.history) == len(progress.traffic.up) == len(progress.traffic.down)
        lines = all(isinstance(line, dict) and "cohort" in line for line in progress.history)
        if not (fits and told and lines and rounds == len(progress.history) <= training.rounds):
            raise ValueError("another model or method")
        progress.clients = training.storage.restored(
            partial(training.store, progress),
            len(training.fed),
            trees["clients"],
            device,
            progress.stage,
            checkpoint.number,
        )
    except GlocalError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise GlocalError(
            f"checkpoint {checkpoint.number} does not fit the run's model and method ({error}): "
            "they have changed since; train it again."
        ) from error
    return progress
