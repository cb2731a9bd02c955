"""What a worker is given, and how it takes turns: nothing here but numpy.

Every contestant is a function ``contest(work, setting, turns)`` in a file of its own. It makes
itself ready and then trains one round for each turn. The clock runs while a turn is out: from when
``turns`` gives a round's number until it is asked for the next one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

Arrays = list[np.ndarray[Any, Any]]
"""A model's parameters, in PyTorch's order and layout."""


@dataclass(frozen=True)
class Work:
    """A case: the clients' data, the first model, and the rounds, the same for everybody."""

    folder: Path
    model: str
    input_shape: tuple[int, ...]
    classes: int
    batch_size: int
    rate: float
    seed: int
    x: np.ndarray[Any, Any]
    """[clients, examples, …]."""
    y: np.ndarray[Any, Any]
    """[clients, examples], integers."""
    cohorts: np.ndarray[Any, Any]
    """[rounds, clients a round]: who trains."""
    orders: np.ndarray[Any, Any]
    """[rounds, clients a round, examples]: the order of each one's examples, as glocal draws it."""
    initial: Arrays

    @property
    def rounds(self) -> int:
        """How many turns there will be."""
        return len(self.cohorts)

    def save(self) -> None:
        """Write what :func:`load` reads."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ARRAYS:
            np.save(self.folder / f"{name}.npy", getattr(self, name))
        save_params(self.folder / "initial.npz", self.initial)
        settings = {name: getattr(self, name) for name in SETTINGS}
        (self.folder / "work.json").write_text(json.dumps(settings))

    def examples(self, client: int, order: np.ndarray[Any, Any]) -> tuple[Any, Any]:
        """A client's inputs and labels in the order of a round."""
        return self.x[client][order], self.y[client][order]


ARRAYS = ("x", "y", "cohorts", "orders")
SETTINGS = ("model", "input_shape", "classes", "batch_size", "rate", "seed")


def load(folder: Path, *, mapped: bool = False) -> Work:
    """A case from its folder; ``mapped`` leaves the examples on disk, for several processes."""
    settings = json.loads((folder / "work.json").read_text())
    settings["input_shape"] = tuple(settings["input_shape"])
    arrays = {n: np.load(folder / f"{n}.npy", mmap_mode="r" if mapped else None) for n in ARRAYS}
    return Work(folder, **settings, **arrays, initial=load_params(folder / "initial.npz"))


def save_params(file: Path, params: Arrays) -> None:
    """Write a model."""
    np.savez(file, **{f"{i:03d}": p for i, p in enumerate(params)})  # type: ignore[arg-type]


def load_params(file: Path) -> Arrays:
    """Read a model."""
    with np.load(file) as held:
        return [held[name] for name in sorted(held.files)]


class Turns:
    """Round numbers, one at a time, as the harness tells; seconds, as they took, back to it."""

    def __init__(self, told: IO[str], says: IO[str]) -> None:
        self.told, self.says = told, says
        self.params: Callable[[], Arrays] = list
        """The model as it stands: set by the contestant before its first turn."""
        self.note = ""
        """What the reader should know about how this contestant ran."""
        self._began: float | None = None

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        """Stop the clock, say so, wait for the next round, start the clock."""
        if self._began is None:
            self._say({"ready": True, "note": self.note})
        else:
            self._say({"seconds": time.perf_counter() - self._began})
        while True:
            line = self.told.readline()
            command = json.loads(line) if line else {"do": "stop"}
            if command["do"] == "stop":
                raise StopIteration
            if command["do"] == "params":
                save_params(Path(command["file"]), self.params())
                self._say({"saved": True})
            else:
                self._began = time.perf_counter()
                return int(command["round"])

    def _say(self, what: dict[str, Any]) -> None:
        self.says.write(json.dumps(what) + "\n")
        self.says.flush()
