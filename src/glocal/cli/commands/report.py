"""``glocal report``: a run, a comparison or a sweep as one HTML file."""

from __future__ import annotations

from pathlib import Path

from glocal import report as reports
from glocal.cli.options import PATH, option, out_file, output, run_places
from glocal.core import files
from glocal.core.errors import GlocalError


def report(
    places: list[Path] = run_places(),
    out: Path | None = out_file("The .html file; report.html in the first folder by default."),
    study: list[Path] | None = option(
        None,
        "A file that 'glocal study weights' or 'glocal study mixture' wrote with --json; may be "
        "given several times.",
        panel="Input",
        click_type=PATH,
    ),
    participant: str | None = output(
        None, "A participant: the file then has its own data alone, to hand to it."
    ),
) -> None:
    """Write one HTML file that answers who is better off than alone, to show to others.

    It needs no network and no other file. Without --participant it has every participant's figures.

    Examples:
      glocal report runs/2026-01-31-120000-compare

      glocal report runs/A runs/B --out both.html

      glocal report runs/A --study weights.json --study mixture.json

      glocal report runs/hospitals --participant Görlitz --out Görlitz.html
    """
    if out is not None:
        reports.page.check_file(out, "--out")
    if participant is not None and out is None:
        raise GlocalError(
            "a participant's page needs a file of its own: name it with --out, as in --out "
            "page.html."
        )
    data = reports.page.collect(places)
    if study:
        data = reports.page.with_studies(data, study)
    if participant is not None:
        data = reports.page.alone(data, participant)
    page = reports.page.render(data)
    file = places[0] / "report.html" if out is None else out
    files.write(file, page.encode())
    print(f"Report: {file}")
