"""Where a command's result goes: tables, JSON to a file or to stdout, a picture.

Whether the files can be written is checked while options are read, before anything is trained.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click
from typer.core import TyperCommand

from glocal import report
from glocal.cli.options import path_option, usable
from glocal.core import files
from glocal.core.errors import GlocalError


def file_for(option: str) -> Callable[[Path | None], Path | None]:
    """A check that raises if an option names no file that can be written; ``-`` is stdout."""

    def check(path: Path | None) -> Path | None:
        if path is None or usable(path) == Path("-"):
            return path
        folder = path.resolve().parent  # of a link, where it leads
        if path.is_dir():
            raise GlocalError(f"{option} {path} is a folder: give the name of a file.")
        if not folder.is_dir():
            raise GlocalError(
                f"the folder of {option} {path} does not exist: make it, or choose another."
            )
        if not os.access(path if files.is_special(path) else folder, os.W_OK):
            raise GlocalError(
                f"the folder of {option} {path} cannot be written to: choose another."
            )
        return path

    return check


writable = file_for("--json")


def drawable(path: Path | None) -> Path | None:
    """Raise if ``--picture`` names no file that can be drawn."""
    if path is not None and usable(path):
        report.canvas.check_picture(path)
    return path


output_file = partial(path_option, None, panel="Output")

JSON = output_file("Also write all figures to this file ('-': print).", "--json", callback=writable)
CSV = output_file(
    "Also write a line for each client and method to this .csv file ('-': print).",
    "--csv",
    callback=file_for("--csv"),
)
PICTURE = output_file(
    "Draw it to this .png, .svg or .pdf file (needs glocal\\[plot]).",
    "--picture",
    callback=drawable,
)


class BareJson(TyperCommand):
    """A command in which ``--json`` by itself prints."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read ``--json`` with nothing behind it as ``--json -``."""
        followed = zip(args, [*args[1:], "--"], strict=False)  # of no words there is none
        bare = [a == "--json" and b != "-" and b.startswith("-") for a, b in followed]
        return super().parse_args(
            ctx, ["--json=-" if b else a for a, b in zip(args, bare, strict=True)]
        )


def deliver(
    result: Mapping[str, Any],
    json: Path | None,
    show: Callable[[], None],
    picture: Path | None = None,
    draw: Callable[[Path], None] | None = None,
    *,
    quiet: bool = False,
) -> None:
    """Write the JSON, show the tables (unless stdout is taken, or ``quiet``), draw the picture."""
    printed = deliver_json(files.dump(files.plain(result)), json) or quiet
    if not printed:
        show()
    if picture is not None and draw is not None:
        draw(picture)
        if not printed:
            print(f"Picture: {picture}")


def deliver_json(content: bytes, file: Path | None) -> bool:
    """Write JSON (or CSV) where it was asked for; whether to stdout, which then has no tables."""
    if file == Path("-"):
        sys.stdout.write(content.decode())
        return True
    if file is not None:
        files.write(file, content)
    return False
