"""``glocal adapt``: clients of a finished run adapt what it left them, from its folder."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from glocal import report, studies
from glocal.cli.options import folder_of, option, path_option
from glocal.cli.output import JSON, PICTURE, deliver
from glocal.core.progress import reporter


def adapt(
    folder: Path = folder_of("The folder of a run, or of a comparison with several runs in it."),
    by: str = option(
        "best",
        "How clients adapt: fine-tune, freeze-base, ewc, distill, with settings and joined by +, "
        "or best (all of them, and of those each client's best).",
    ),
    again: bool = option(
        False, "Also average the adapted models, and evaluate that one model everywhere.", "--again"
    ),
    without: bool = option(
        False,
        "Also train anew without the clients who do better alone on their validation data, and "
        "evaluate the new model at everybody.",
        "--without",
    ),
    public: Path | None = path_option(
        None,
        "Examples that are nobody's (x, y in a .safetensors file), for ewc(fisher=public).",
        metavar="FILE",
    ),
    device: str | None = option(None, "cpu or cuda; that of the run by default."),
    json: Path | None = JSON,
    picture: Path | None = PICTURE,
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
