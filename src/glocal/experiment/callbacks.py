"""Who is told how training goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from glocal.core.progress import Report, silent
from glocal.training.run_state import Progress

Line = dict[str, Any]
"""A round of a method's history."""


@dataclass(frozen=True)
class Callbacks:
    """Who is told how training goes on."""

    report: Report = silent
    """Called with what is trained, how much of it is done, and how much there is."""
    on_line: Callable[[str, Line], None] = lambda name, line: None
    """Called with a method's name and each line of its history, again where a run is resumed."""
    on_round: Callable[[Progress], None] = lambda progress: None
    """Called with where the training stands after each round."""


NOBODY = Callbacks()
"""Nobody is told."""
