"""Progress bars on a terminal, nothing elsewhere, and notes on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

Report = Callable[[str, int, int], None]
"""A function of what is going on, how much of it is done, and how much there is."""


Tick = Callable[[int, int], None]
"""A function of how much is done, and how much there is."""


def silent(what: str, done: int, total: int) -> None:
    """Report nothing."""


NO_TICK: Tick = partial(silent, "")


@contextmanager
def reporter(progress: bool | Report | None) -> Iterator[Report]:
    """Yield the function to call: it draws bars if asked to or, by default, on a terminal."""
    if callable(progress):
        yield progress
        return
    if progress is False or (progress is None and not sys.stderr.isatty()):
        yield silent
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeRemainingColumn as Remaining
    except ImportError:  # the core runs without rich
        yield silent
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Remaining())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        bar_ids: dict[str, int] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in bar_ids:
                bar_ids[what] = bars.add_task(what, total=total)
            bars.update(bar_ids[what], completed=done)  # type: ignore[arg-type]

        yield report


class Spelling:
    """How notes spell the settings that they name: as Python does, unless the command line runs."""

    of: Callable[[str], str] = str


def print_note(text: str) -> None:
    """Print a line on stderr about something that happens once, such as a download."""
    print(f"glocal: {Spelling.of(text)}", file=sys.stderr, flush=True)


class _Said:
    """What was said in a call that says nothing twice; none: there is no such call."""

    texts: set[str] | None = None


@contextmanager
def notes_once() -> Iterator[None]:
    """Let a command, or a call that loads the same data often, say nothing about it twice."""
    before, _Said.texts = _Said.texts, set() if _Said.texts is None else _Said.texts
    try:
        yield
    finally:
        _Said.texts = before


def note(text: str) -> None:
    """Print a line on stderr, unless it was said in this call already."""
    if _Said.texts is None or text not in _Said.texts:
        print_note(text)
    if _Said.texts is not None:
        _Said.texts.add(text)
