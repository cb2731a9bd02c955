"""Bars on a terminal for whatever takes long; silence elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[str, int, int], None]
"""What is going on, how much of it is done, and how much there is."""


def silent(what: str, done: int, total: int) -> None:
    """Say nothing."""


@contextmanager
def reporter(progress: bool | Report | None) -> Iterator[Report]:
    """The report to call: bars if asked for or, by default, if stderr is a terminal."""
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
        shown: dict[str, int] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in shown:
                shown[what] = bars.add_task(what, total=total)
            bars.update(shown[what], completed=done)  # type: ignore[arg-type]

        yield report


def say(text: str) -> None:
    """A line on stderr about something that happens once, such as a download."""
    print(f"glocal: {text}", file=sys.stderr, flush=True)


def to_stderr(text: str) -> None:
    """Say it there."""
    print(f"glocal: {text}", file=sys.stderr, flush=True)
