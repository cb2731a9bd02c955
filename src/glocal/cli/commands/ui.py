"""``glocal ui``: runs, comparisons and deployments in a browser, as they grow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from glocal.cli.commands.runs import default_place
from glocal.cli.options import PATH, option, usable
from glocal.core.errors import GlocalError
from glocal.core.progress import print_note

PORT = 8642


def ui(
    folder: Path | None = typer.Argument(
        None,
        metavar="[DIR]",
        help="A run folder, or a folder with runs below. Default: runs/.",
        callback=usable,
        click_type=PATH,
    ),
    port: int = option(
        PORT, "The port that it listens at (0: any that is free).", min=0, max=65535
    ),
    host: str = option(
        "127.0.0.1",
        "The address of this machine that it listens at; one that others reach takes the token "
        "that is printed.",
    ),
    browser: bool = option(False, "Open it in a browser, too.", "--open"),
) -> None:
    """Show runs in a browser while they train: a list, reports, comparisons, deployments.

    Reads folders only: a run that goes on is not disturbed. Ctrl-C ends it.

    Examples:
      glocal ui

      glocal ui runs/2026-01-31-120000-compare --open
    """
    from glocal.report.live.server import serving
    from glocal.report.live.watched import Watched

    place = default_place() if folder is None else folder
    if not place.is_dir():
        raise GlocalError(f"there is no folder {place}: check its name.")
    with serving(Watched(place, _deployment), host, port) as server:
        typer.echo(f"Listening at {server.access.url} (Ctrl-C ends it).")
        if server.access.token is not None:
            print_note(
                "others can read along what goes over a network without TLS, the token among it: "
                "listen at 127.0.0.1 and use a tunnel (ssh -L) where you do not trust it."
            )
        if browser:
            _open(server.access.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            typer.echo()  # behind the terminal's ^C


def _deployment(folder: Path) -> Mapping[str, Any]:
    """What a server's folder says; its modules are imported when there is one."""
    from glocal.deploy.server_folder import ServerFolder
    from glocal.deploy.status import details

    return details(ServerFolder.opened(folder))


def _open(url: str) -> None:
    import webbrowser

    if not webbrowser.open(url):
        print_note("there is no browser that can be opened here: open the address yourself.")
