"""A browser, and the folders that it is shown, each made once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from browser.chromium import ARGUMENTS, EXECUTABLE, Opened, opened
from browser.results import EVIL, trained, with_clients, with_method
from browser.serving import Served, served_from
from glocal.report import page


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    assert EXECUTABLE.is_file(), "these tests need Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=EXECUTABLE, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Opened]]:
    """Open pages, each of which must end without a complaint."""
    pages: list[Opened] = []
    with ExitStack() as contexts:

        def new(address: str | Path | None = None, **settings: Any) -> Opened:
            pages.append(contexts.enter_context(opened(browser, **settings)))
            if address is not None:
                pages[-1].goto(address)
            return pages[-1]

        yield new
        assert [said for each in pages for said in each.complaints] == []


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders: a trained comparison, one with 200 clients, one with malicious names."""
    root = tmp_path_factory.mktemp("browser")
    source = trained(root / "three")
    with_clients(source, root / "many", [f"client-{i:03d}" for i in range(200)])
    evil = with_clients(source, root / "evil-clients", list(EVIL))
    with_method(evil, root / "evil", "ditto", EVIL[0] + EVIL[2])
    return root


def _report(folder: Path) -> Path:
    file = folder.parent / f"{folder.name}.html"
    if not file.is_file():
        file.write_text(page.render(page.collect([folder])), encoding="utf-8")
    return file


@pytest.fixture
def three(made: Path) -> Path:
    """The report of three methods and eight clients, as a file."""
    return _report(made / "three")


@pytest.fixture
def many(made: Path) -> Path:
    """The same of 200 clients."""
    return _report(made / "many")


@pytest.fixture
def evil(made: Path) -> Path:
    """The same with names that try to be more than text."""
    return _report(made / "evil")


@pytest.fixture(scope="session")
def served(made: Path) -> Iterator[Served]:
    """The live view of these folders, and of a deployment."""
    clinic = made / "clinic"
    clinic.mkdir()
    for name in ("server.json", "plan.json"):
        (clinic / name).write_text("{}")
    with served_from(made) as server:
        yield server
