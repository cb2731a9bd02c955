"""Make docs/pictures/report.png: the first screen of the report that docs/how-to/report.md makes.

    python tools/report_picture.py    # needs make test-browser's Chromium; a minute on two cores

The run is made in a temporary folder with the first command of that page.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs/pictures/report.png"
COMPARE = "compare local fedavg ditto --rounds 60 --no-tune --out runs/report"
WIDTH, HEIGHT = 1100, 1500


def main() -> None:
    """Train, write the report, and photograph it."""
    from playwright.sync_api import sync_playwright

    assert f"glocal {COMPARE}\n" in (ROOT / "docs/how-to/report.md").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        for words in (COMPARE, "report runs/report"):
            glocal = Path(sys.executable).parent / "glocal"
            subprocess.run([str(glocal), *words.split()], cwd=folder, check=True)
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto((Path(folder) / "runs/report/report.html").as_uri())
        page.screenshot(path=PICTURE)
        browser.close()


if __name__ == "__main__":
    main()
