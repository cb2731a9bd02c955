"""The page of runs that were trained here, written to a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glocal.core.errors import GlocalError
from glocal.core.files import write
from glocal.experiment.run import Run
from glocal.report.page.document import render
from glocal.report.page.reading import of_runs
from glocal.report.page.single import alone


def check_file(path: Path, option: str) -> Path:
    """Raise if this is no file that a page can be written to."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise GlocalError(f"{option} {path} must be the name of an .html file.")
    if path.is_dir():
        raise GlocalError(f"{option} {path} is a folder: give the name of a file.")
    if not path.absolute().parent.is_dir():
        raise GlocalError(f"there is no folder {path.parent} for {option}: make it first.")
    return path


def write_page(runs: Any, path: str | Path, participant: str | None = None) -> None:
    """Write the page of a run, or of a comparison's runs; with a name, of one participant alone."""
    file = check_file(Path(path), "the page")
    several: Mapping[str, Run] = runs if isinstance(runs, dict) else {runs.method: runs}
    data = of_runs(several)
    write(file, render(data if participant is None else alone(data, str(participant))).encode())
