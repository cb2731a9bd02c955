"""Pages as a browser shows them, with everything that it complains of or asks a network for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

EXECUTABLE = Path("/usr/bin/chromium")

ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]

PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1200, "height": 900}


class Opened:
    """A page, and what went wrong with it."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", self._dialog)
        page.on("request", lambda request: self.requests.append(request.url))

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _dialog(self, dialog: Any) -> None:
        self.complaints.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def goto(self, address: str | Path) -> Any:
        """Open a file or an address."""
        self.page.goto(address.as_uri() if isinstance(address, Path) else address)
        return self.page

    def scrolls_sideways(self) -> bool:
        """Whether the page as a whole is wider than the window."""
        wide: bool = self.page.evaluate(
            "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        )
        return wide


@contextmanager
def opened(browser: Any, **settings: Any) -> Iterator[Opened]:
    """A page in a context of its own, with nothing stored."""
    context = browser.new_context(**{"viewport": DESKTOP, "accept_downloads": True, **settings})
    context.set_default_timeout(60_000)
    try:
        yield Opened(context.new_page())
    finally:
        context.close()


def violations(page: Any) -> list[str]:
    """What axe finds that is serious or critical, with the elements."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [
        f"{each['id']}: {node['html'][:200]} {node['failureSummary']}"
        for each in found
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"][:3]
    ]
