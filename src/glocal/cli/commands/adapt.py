"""``glocal adapt``: clients of a finished run adapt what it left them, from its folder."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from glocal import report, studies
from glocal.cli.options import usable
from glocal.cli.output import Json, Picture, deliver, option
from glocal.core.progress import reporter


def adapt(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="The folder of a run, or of a comparison with several runs in it.",
            callback=usable,
        ),
    ],
    by: Annotated[
        str,
        option(
            "How clients adapt: fine-tune, freeze-base, ewc, distill, with settings and "
            "joined by +, or best (all of them, and of those each client's best)."
        ),
    ] = "best",
    again: Annotated[
        bool,
        option(
            "Also average the adapted models, and evaluate that one model everywhere.",
            None,
            "--again",
        ),
    ] = False,
    without: Annotated[
        bool,
        option(
            "Also train anew without the clients who do better alone on their validation "
            "data, and evaluate the new model at everybody.",
            None,
            "--without",
        ),
    ] = False,
    public: Annotated[
        Path | None,
        option(
            "Examples that are nobody's (x, y in a .safetensors file), for ewc(fisher=public).",
            metavar="FILE",
            callback=usable,
        ),
    ] = None,
    device: Annotated[str | None, option("cpu or cuda; that of the run by default.")] = None,
    json: Json = None,
    picture: Picture = None,
) -> None:
    """Let the clients of a finished run adapt what it left them: who is better off now?

    Examples:
      glocal adapt runs/2026-01-31-120000-fedavg

      glocal adapt runs/2026-01-31-120000-compare --again --without --picture adapted.png
    """
    with reporter(None) as progress:
        runs, more, result = studies.adaptation.adapt_runs(
            folder, by, again=again, without=without, public=public, device=device, report=progress
        )
    show = partial(report.adaptation.show, runs, more)
    deliver(result, json, show, picture, partial(report.adaptation.draw, result))
