"""``glocal plot``: learning curves of runs, comparisons and sweeps."""

from __future__ import annotations

from pathlib import Path

from glocal import report, runs
from glocal.cli.options import out_file, output, run_places
from glocal.core.progress import print_note


def plot(
    places: list[Path] = run_places(),
    out: Path | None = out_file(
        "The .png, .svg or .pdf file; curves.png in the first folder by default."
    ),
    metric: str | None = output(
        None, "The metric that is drawn; the one that counts by default. (accuracy, auc, …)"
    ),
) -> None:
    """Draw learning curves: losses, the metric on validation data with its worst 10 %, and Gini.

    Repeats are drawn as their mean and range. Needs matplotlib, as the extra plot brings it.

    Examples:
      glocal plot runs/2026-01-31-120000-compare

      glocal plot runs/A runs/B --out curves.svg --metric accuracy
    """
    picture = places[0] / "curves.png" if out is None else out
    if out is not None:
        report.canvas.check_picture(picture, "--out", report.canvas.KINDS)
    said: list[str] = []
    curves = runs.curves.read_curves(places, said.append)
    figure, title, note = report.curves.draw(curves, metric)
    for sentence in said:  # of what is drawn: too many runs are one sentence, not one for each
        print_note(sentence)
    report.canvas.save(figure, picture, title, note)
    print(f"Picture: {picture}")
